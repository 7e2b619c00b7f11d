"""Settings: where a value comes from, and what is said when it cannot be used."""

import os
from pathlib import Path

import pytest

from detent.errors import DetentError, UsageError
from detent.settings.settings import SETTINGS, Settings


def load(folder: Path, environ: dict[str, str] | None = None, **flags: object) -> Settings:
    return Settings.load(flags, {"HOME": "/home/ada", **(environ or {})}, folder)


def refusal(folder: Path, environ: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(UsageError) as caught:
        load(folder, environ, **flags)
    return caught.value.message


def test_without_any_source_every_setting_is_its_default(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.database_url is None
    assert (settings.host, settings.port) == ("127.0.0.1", 8787)
    assert settings.queues == ("default",)
    assert settings.lease_ttl_seconds == 5.0
    assert dict(settings.origins) == dict.fromkeys(SETTINGS, "default")


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "detent.toml").write_text('host = "10.0.0.1"\nport = 1111\nconcurrency = 7\n')
    settings = load(tmp_path, {"DETENT_PORT": "2222", "DETENT_HOST": "10.0.0.2"}, port=3333)
    assert (settings.host, settings.port, settings.concurrency) == ("10.0.0.2", 3333, 7)
    assert settings.origins["port"] == "--port"
    assert settings.origins["host"] == "DETENT_HOST"
    assert settings.origins["concurrency"] == f"concurrency in {tmp_path / 'detent.toml'}"
    assert settings.origins["migrate"] == "default"


def test_flags_that_were_not_given_and_empty_variables_change_nothing(tmp_path: Path) -> None:
    settings = load(tmp_path, {"DETENT_API_KEY": "", "DETENT_PORT": ""}, port=None, queues=(), app="")
    assert (settings.port, settings.queues, settings.app, settings.api_key) == (
        8787,
        ("default",),
        None,
        None,
    )


def test_the_config_flag_names_another_file_and_relative_folders_start_there(tmp_path: Path) -> None:
    elsewhere = tmp_path / "etc"
    elsewhere.mkdir()
    (elsewhere / "site.toml").write_text('data_dir = "state"\n')
    (tmp_path / "detent.toml").write_text("port = 1\n")
    settings = load(tmp_path, config="etc/site.toml")
    assert settings.data_dir == elsewhere / "state"
    assert settings.port == 8787


def test_every_kind_of_value_can_be_written_as_text(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        {
            "DETENT_QUEUES": "mail, reports,mail",
            "DETENT_ALLOW_SHELL": "default,ops",
            "DETENT_DRAIN_SECONDS": "2.5",
            "DETENT_LOG_FORMAT": "JSON",
            "DETENT_DATA_DIR": "here",
            "DETENT_DATABASE_URL": "postgresql:///detent?host=/run/postgresql",
        },
    )
    assert settings.queues == ("mail", "reports")
    assert settings.allow_shell == ("default", "ops")
    assert settings.keys_required is True
    assert settings.drain_seconds == 2.5
    assert settings.log_format == "json"
    assert settings.data_dir == tmp_path / "here"


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("DETENT_PORT", "abc", "DETENT_PORT is 'abc': give a port number between 0 and 65535."),
        ("DETENT_PORT", "70000", "DETENT_PORT is '70000': give a port number between 0 and 65535."),
        ("DETENT_CONCURRENCY", "0", "DETENT_CONCURRENCY is '0': give a whole number between 1 and 100000."),
        (
            "DETENT_LEASE_TTL_SECONDS",
            "nan",
            "DETENT_LEASE_TTL_SECONDS is 'nan': give a number of seconds between 0.5 and 300.",
        ),
        ("DETENT_MIGRATE", "maybe", "DETENT_MIGRATE is 'maybe': give true or false."),
        ("DETENT_APP", "shop.jobs", "DETENT_APP is 'shop.jobs': give MODULE:NAME, such as shop.jobs:app."),
        (
            "DETENT_API_URL",
            "http:8787",
            "DETENT_API_URL is 'http:8787': give an address such as http://127.0.0.1:8787.",
        ),
        ("DETENT_LOG_LEVEL", "loud", "DETENT_LOG_LEVEL is 'loud': give debug, info, warning or error."),
        (
            "DETENT_DATABASE_SCHEMA",
            'a"b',
            "DETENT_DATABASE_SCHEMA is 'a\"b': give a lower-case name of letters, digits and underscores, "
            "such as detent.",
        ),
    ],
)
def test_a_variable_that_does_not_fit_is_named_with_what_to_give(
    tmp_path: Path, variable: str, text: str, sentence: str
) -> None:
    assert refusal(tmp_path, {variable: text}) == sentence


def test_a_value_in_the_file_of_the_wrong_type_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "detent.toml"
    file.write_text("port = true\n")
    assert refusal(tmp_path) == f"port in {file} is True: give a port number between 0 and 65535."
    file.write_text("queues = [1]\n")
    assert refusal(tmp_path).startswith(f"queues in {file} is [1]: give one or more queue names")


def test_the_refusal_points_at_the_setting(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, port=-1)
    assert (caught.value.pointer, caught.value.exit_code) == ("/port", 2)
    assert caught.value.message == "--port is -1: give a port number between 0 and 65535."


def test_unknown_names_are_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"DETENT_DATABSE_URL": "x"}) == (
        "The variable DETENT_DATABSE_URL is not a setting of detent: did you mean DETENT_DATABASE_URL?"
    )
    assert refusal(tmp_path, quees="x").endswith("did you mean --queues?")
    file = tmp_path / "detent.toml"
    file.write_text("prot = 1\n")
    assert refusal(tmp_path) == f"The key prot in {file} is not a setting of detent: did you mean port?"
    file.write_text("zzzzzzzz = 1\n")
    assert refusal(tmp_path).endswith("is not a setting of detent: remove it.")


def test_variables_of_the_test_suite_are_passed_over(tmp_path: Path) -> None:
    assert load(tmp_path, {"DETENT_TEST_POSTGRES": "15"}).port == 8787


def test_a_secret_may_be_read_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgresql://ada:pass@db/detent\n")
    settings = load(tmp_path, {"DETENT_DATABASE_URL_FILE": str(secret)})
    assert settings.database_url == "postgresql://ada:pass@db/detent"
    assert settings.origins["database_url"] == "DETENT_DATABASE_URL_FILE"
    both = {"DETENT_DATABASE_URL_FILE": str(secret), "DETENT_DATABASE_URL": "postgresql://db/detent"}
    assert refusal(tmp_path, both) == (
        "DETENT_DATABASE_URL and DETENT_DATABASE_URL_FILE are both set: keep one of the two."
    )
    missing = tmp_path / "missing"
    assert refusal(tmp_path, {"DETENT_API_KEY_FILE": str(missing)}) == (
        f"DETENT_API_KEY_FILE names {missing}, which cannot be read (No such file or directory)."
    )


def test_only_secrets_have_a_file_variant(tmp_path: Path) -> None:
    assert "is not a setting" in refusal(tmp_path, {"DETENT_PORT_FILE": "x"})


def test_a_secret_is_never_repeated_in_an_error_or_a_repr(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, {"DETENT_DATABASE_URL": "mysql://ada:hunter2@db/x"})
    assert sentence == (
        "DETENT_DATABASE_URL is not usable: give an address such as postgresql://user@host:5432/detent."
    )
    settings = load(tmp_path, database_url="postgresql://ada:hunter2@db/x", api_key="hunter3")
    assert "hunter" not in repr(settings)


def test_a_file_that_cannot_be_read_or_is_not_toml_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "detent.toml"
    file.write_text("port = = 1")
    assert refusal(tmp_path).startswith(f"{file} is not valid TOML: ")
    file.write_bytes(b"\xff\xfe")
    assert refusal(tmp_path) == f"The settings file {file} cannot be read (it is not UTF-8 text)."
    missing = tmp_path / "missing.toml"
    assert refusal(tmp_path, config="missing.toml") == (
        f"The settings file {missing} cannot be read (No such file or directory)."
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_keeps_its_data_in_the_system_folder(tmp_path: Path) -> None:
    assert load(tmp_path).data_dir == Path("/var/lib/detent")


def test_other_users_keep_data_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert load(tmp_path).data_dir == Path("/home/ada/.local/share/detent")
    assert load(tmp_path, {"XDG_DATA_HOME": "/srv/ada"}).data_dir == Path("/srv/ada/detent")
    assert load(tmp_path, {"XDG_DATA_HOME": "relative"}).data_dir == Path("/home/ada/.local/share/detent")
    assert "--data-dir" in refusal(tmp_path, {"HOME": ""})


def test_every_error_carries_the_exit_code_of_its_kind() -> None:
    kinds = [kind for kind in DetentError.__subclasses__() if kind.__module__ == DetentError.__module__]
    codes = {kind.__name__: kind.exit_code for kind in kinds}
    assert codes == {
        "UsageError": 2,
        "NotFound": 3,
        "NotAuthorised": 4,
        "RunFailed": 5,
        "Conflict": 6,
        "QuotaReached": 6,
        "Unavailable": 7,
        "OwnershipLost": 1,
        "StartupFailed": 1,
    }


@pytest.mark.parametrize("place", ["/var/lib/detent/archive", "~/archive", "file:///srv/history", "s3://bucket/detent"])
def test_an_archive_is_a_folder_or_object_storage(place: str) -> None:
    assert Settings.load({}, {"HOME": "/home/x", "DETENT_ARCHIVE_URL": place}).archive_url == place


@pytest.mark.parametrize("place", ["archive", "./archive", "ftp://host/x", "https://host/x"])
def test_an_archive_that_is_neither_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="DETENT_ARCHIVE_URL"):
        Settings.load({}, {"HOME": "/home/x", "DETENT_ARCHIVE_URL": place})
