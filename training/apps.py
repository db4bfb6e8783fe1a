"""Django's handle on this package."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from training import counts  # noqa: F401  registers how captures are counted
