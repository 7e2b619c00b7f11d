"""Settings of the example. DATABASE_URL names the database, such as postgresql://user:password@host/shop."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

import django

SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-this-example")
DEBUG = os.environ.get("DEBUG", "1") == "1"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),  # Django 6 has it built in
    "detent.contrib.django",
    "orders",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
_url = urlsplit(os.environ.get("DATABASE_URL", "postgresql:///shop"))
_query = {name: values[0] for name, values in parse_qs(_url.query).items()}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(_url.path.lstrip("/")),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname or _query.get("host", ""),
        "PORT": _url.port or _query.get("port", ""),
        "ATOMIC_REQUESTS": True,
    },
}
TASKS = {
    "default": {
        "BACKEND": "detent.contrib.django.DetentBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"database": "default", "schema": "detent", "tenant": "default"},
    },
}
# When the totals are computed: every day at two in the morning.
TOTALS_CRON = os.environ.get("TOTALS_CRON", "0 2 * * *")
