"""The audit table refuses every change but an insert, whoever asks: by trigger here, by grants at set-up."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION registry_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON registry_auditevent
    FOR EACH ROW EXECUTE FUNCTION registry_audit_append_only();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON registry_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION registry_audit_append_only();
"""

BACK = """
DROP TRIGGER audit_no_truncate ON registry_auditevent;
DROP TRIGGER audit_append_only ON registry_auditevent;
DROP FUNCTION registry_audit_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACK)]
