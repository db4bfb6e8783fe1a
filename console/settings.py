"""Every setting, from the environment. Only assignments; docs/settings.md lists all variables and a test compares."""

import os
import sys
from pathlib import Path

from celery.schedules import crontab
from csp.constants import NONCE, NONE, SELF
from django.contrib.messages import constants as message_levels

from console import embedded
from console.environment import broker, database, envbool, envint, envsecret, state_folder

BASE_DIR = Path(__file__).resolve().parent.parent

# --- places -----------------------------------------------------------------------------------------------------------
STATE = state_folder(BASE_DIR)
BLOB_ROOT = Path(os.environ.get("LOOPLINE_BLOBS", STATE / "blobs"))
CACHE_ROOT = Path(os.environ.get("LOOPLINE_CACHE", STATE / "cache"))
CACHE_MAX_BYTES = envint("LOOPLINE_CACHE_MAX_MB", 20_000) * 1_000_000
LEVELS_MAX_BYTES = envint("LOOPLINE_LEVELS_MAX_MB", 4_000) * 1_000_000
JOBS_ROOT = Path(os.environ.get("LOOPLINE_JOBS", STATE / "jobs"))
LOG_ROOT = STATE / "log"
SHARED_DATA = Path(os.environ.get("LOOPLINE_SHARED_DATA", BASE_DIR.parent / "shared" / "data"))

# --- services: the plant's own by URL, else the embedded ones ---------------------------------------------------------
SERVICES = embedded.addresses(STATE)
DATABASES = {
    "default": database(envsecret("DATABASE_URL", SERVICES.database), pool=envint("LOOPLINE_DATABASE_POOL", 8)),
}
DATABASE_OWNER_URL = envsecret("DATABASE_OWNER_URL", SERVICES.owner if not envsecret("DATABASE_URL") else "")
REDIS_URL = envsecret("REDIS_URL", SERVICES.redis)
MLFLOW_TRACKING_URI = envsecret("MLFLOW_TRACKING_URI", SERVICES.mlflow)
MLFLOW_STORE = envsecret("LOOPLINE_MLFLOW_STORE")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- web --------------------------------------------------------------------------------------------------------------
WEB_PROCESSES = envint("LOOPLINE_WEB_PROCESSES", min(4, len(os.sched_getaffinity(0))), least=1, most=64)
DEBUG = envbool("LOOPLINE_DEBUG", False)
SECRET_KEY = envsecret("LOOPLINE_SECRET_KEY", keep_in=STATE / "secret-key")
ALLOWED_HOSTS = os.environ.get("LOOPLINE_HOSTS", "127.0.0.1,localhost,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [origin for origin in os.environ.get("LOOPLINE_ORIGINS", "").split(",") if origin]
HTTPS = envbool("LOOPLINE_HTTPS", False)
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
AUTH_USER_MODEL = "console.User"

INSTALLED_APPS = [
    "console",
    "registry",
    "training",
    "channels",
    "django_htmx",
    "template_partials",
    "csp",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.http.ConsoleMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
            ],
        },
    },
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]

# Device pictures and archives never pass here (console.asgi has doors for them); forms do.
UPLOAD_MAX_BYTES = envint("LOOPLINE_UPLOAD_MAX_MB", 2048, least=1, most=1_000_000) * 1_000_000
ARCHIVE_DAYS = envint("LOOPLINE_ARCHIVE_DAYS", 14, least=1, most=3650)
DATA_UPLOAD_MAX_MEMORY_SIZE = 5_000_000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 4000  # a golden set may have 3,000 pictures, each a tick
FILE_UPLOAD_MAX_MEMORY_SIZE = 1_000_000

# --- language and time ------------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ko", "한국어")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

MESSAGE_TAGS = {message_levels.SUCCESS: "ok", message_levels.WARNING: "rv", message_levels.ERROR: "ng"}  # as notices

# --- security ---------------------------------------------------------------------------------------------------------
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "session-sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "session-sign-in"
CSRF_FAILURE_VIEW = "console.views.session.csrf_failed"

SESSION_COOKIE_AGE = envint("LOOPLINE_SESSION_HOURS", 12, least=1, most=24 * 30) * 3600
SESSION_COOKIE_NAME = "loopline_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SAMESITE = "Strict"
SECURE_SSL_REDIRECT = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# No inline script or style without the page's nonce, nothing from elsewhere; blob: and data: only for pictures.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "blob:", "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
    },
}

# --- live -------------------------------------------------------------------------------------------------------------
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {
            # A blocking read may wait for ever: with a socket timeout, consumers of idle pages die.
            "hosts": [{"address": REDIS_URL, "socket_timeout": None}],
            "prefix": "loopline.live",
            "capacity": 1000,
            "expiry": 30,
        },
    },
}

# --- work -------------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = broker(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "loopline.work.", "socket_connect_timeout": 2}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0, "interval_max": 0.1}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
# The row is the queue entry; a message is only a wake-up call, so it is acknowledged early and never redelivered.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_ROUTES = {
    "training.tasks.run_job": {"queue": "train"},
    "training.tasks.embed": {"queue": "train"},
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
REPEAT_AFTER_S = envint("LOOPLINE_REPEAT_AFTER_HOURS", 24, most=24 * 365) * 3600  # then a decision may be asked again
TRAIN_THREADS = envint("LOOPLINE_TRAIN_THREADS", 0, most=1024)  # 0 = the cores that the worker may use
EMBED_AT_ONCE = envint("LOOPLINE_EMBED_AT_ONCE", 512, most=100_000)  # 0 = never
RECIPE_COMMAND = [sys.executable, "-m", "training.recipe"]
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # in memory: the default one keeps a pickle file
CELERY_BEAT_SCHEDULE = {
    "registry-tick": {"task": "registry.tasks.tick", "schedule": 15.0, "options": {"expires": 60}},
    "training-tick": {"task": "training.tasks.tick", "schedule": 15.0, "options": {"expires": 60}},
    "nightly-recount": {"task": "registry.tasks.recount", "schedule": crontab(hour=18, minute=0)},  # UTC
    "nightly-clear": {"task": "training.tasks.clear", "schedule": crontab(hour=18, minute=30)},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOOPLINE_LOG_LEVEL", "INFO")},
    "loggers": {"django.server": {"level": "WARNING"}, "httpx": {"level": "WARNING"}},
}
