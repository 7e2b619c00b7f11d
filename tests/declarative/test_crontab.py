"""A crontab, line by line: what each line is converted to, and the remarks about it."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.declarative.crontab import ImportOptions, ImportVerdict, Translation, translate
from detent.declarative.crontab_lines import has_user_column
from detent.declarative.crontab_names import name_for

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)  # a Sunday

TRICKY = r"""# m h  dom mon dow   command
SHELL=/bin/bash
PATH = "/usr/local/bin:/usr/bin:$HOME/bin"
MAILTO=ops@example.org
HOME=/srv/app

# Nightly backup,
# of everything
0 2 * * * /opt/backup.sh --full > /dev/null 2>&1
*/5 * * * * cd /srv/app && ./poll
0 0 1,15 * 1 /opt/pay
0 0 */2 * MON /opt/pay --odd
0 0 * * */2 /opt/even
30 2 * * sun-tue report
0 9 * jan,Feb MON-FRI /usr/bin/python3 /opt/winter.py -v
0 0 * * 7 /opt/sunday
0 0 31 2 * /opt/never
60 * * * * /opt/minute-sixty
0 24 * * * /opt/hour-twenty-four
22-3 0 * * * /opt/backwards
@reboot /opt/start
@daily mail -s "100\% done" root%Hello,%%World\%
@every_minute /opt/minutely
@90 /opt/seconds
@yearly /opt/yearly
@fortnightly /opt/fortnightly
#0 5 * * * /opt/commented-out
# 10 things to know about this file
CRON_TZ=Europe/Berlin
30 2 * * * /opt/berlin
TZ=America/New_York
15 4 * * * FOO="a b" nice -n 10 flock -n /run/x.lock /opt/locked
RANDOM_DELAY=10
0 3 * * * /opt/delayed
*/5 * * * * /opt/delayed-too-long
RANDOM_DELAY=0
0~30 1 * * * /opt/random
-0 4 * * * /opt/unlogged
0 5 * * * sleep $((RANDOM \% 60)); /opt/spread
CRON_TZ=Mars/Olympus
0 6 * * * /opt/mars
CRON_TZ=
0 7 * * * /opt/earth && date +\%F
0 8 * * *
this is not a line
0	9	*	*	*	/opt/tabs	and	more
0 10 * * * /opt/backup.sh --again"""

# Line by line: what becomes of it, the job's name, and words that must be said.
EXPECTED: dict[int, tuple[str, str, tuple[str, ...]]] = {
    1: ("comment", "", ()),
    2: ("setting", "", ("run by /bin/bash",)),
    3: ("setting", "", ("PATH", "does not replace $")),
    4: ("setting", "", ("Mail is not sent",)),
    5: ("setting", "", ("HOME", "detent does not")),
    6: ("blank", "", ()),
    7: ("comment", "", ("kept as a tag of backup",)),
    8: ("comment", "", ("kept as a tag of backup",)),
    9: ("job", "backup", ("At 02:00 every day (UTC), next Mon 2026-11-16 02:00", "discards its output")),
    10: ("job", "poll", ("Every 5 minutes", "empty folder")),
    11: ("job", "pay", ("days 1 and 15 of the month or on Monday", "day_match: or", "more often than it seems")),
    12: ("job", "pay-2", ("if that is also on Monday", "day_match: and", "starts again at 1")),
    13: ("job", "even", ("Sunday, Tuesday, Thursday and Saturday",)),
    14: ("job", "report", ("At 02:30 Sunday to Tuesday",)),
    15: ("job", "winter", ("At 09:00", "January and February")),
    16: ("job", "sunday", ("on Sunday",)),
    17: ("refused", "", ("a day that no year has",)),
    18: ("refused", "", ("60 is outside 0 to 59",)),
    19: ("refused", "", ("24 is outside 0 to 23", "midnight is '0'")),
    20: ("job", "backwards", ("range that runs backwards",)),
    21: ("refused", "", ("when a machine starts", "systemd")),
    22: ("job", "mail", ("At 00:00 every day", "standard input (3 lines)", "here-document")),
    23: ("job", "minutely", ("Every minute",)),
    24: ("job", "seconds", ("Every 1 minute and 30 seconds",)),
    25: ("job", "yearly", ("January",)),
    26: ("refused", "", ("@fortnightly",)),
    27: ("off", "", ("commented out",)),
    28: ("comment", "", ("kept as a tag of berlin",)),
    29: ("setting", "", ("Europe/Berlin",)),
    30: ("job", "berlin", ("At 02:30 every day (Europe/Berlin), next Mon 2026-11-16 02:30",)),
    31: ("setting", "", ("TZ", "does not read schedules by it")),
    32: ("job", "locked", ("At 04:15", "flock may not be needed")),
    33: ("setting", "", ("up to 600 s",)),
    34: ("job", "delayed", ("At 03:00",)),
    35: ("job", "delayed-too-long", ("left out here",)),
    36: ("setting", "", ("up to 0 s",)),
    37: ("job", "random", ("H(0-30) 1 * * * (Europe/Berlin)", "becomes H")),
    38: ("job", "unlogged", ("records every run",)),
    39: ("job", "spread", ("jitter_seconds",)),
    40: ("refused", "", ("'Mars/Olympus' is not known", "without their zone")),
    41: ("refused", "", ("zone, set by CRON_TZ above",)),
    42: ("setting", "", ("in UTC",)),
    43: ("job", "earth", ("At 07:00 every day (UTC)",)),
    44: ("refused", "", ("five fields and a command, and this line has 5",)),
    45: ("refused", "", ("five fields and a command, and this line has 5",)),
    46: ("job", "tabs", ("At 09:00",)),
    47: ("job", "backup-2", ("At 10:00", "does not end with a newline")),
}


def translated(text: str, **options: Any) -> Translation:
    return translate("crontab", text, ImportOptions(**{"timezone": "UTC", **options}), NOW)


TRANSLATION = translated(TRICKY)


@pytest.mark.parametrize("number", range(1, len(TRICKY.splitlines()) + 1))
def test_every_line_of_a_tricky_crontab_is_explained(number: int) -> None:
    verdict: ImportVerdict = TRANSLATION.verdicts[number - 1]
    what, name, words = EXPECTED[number]
    said = " ".join(verdict.sentences)
    assert (verdict.line.number, verdict.what) == (number, what), said
    assert (verdict.job.name if verdict.job else "") == name
    for word in words:
        assert word in said
    assert not name or said.startswith(f"{name}: ")


def document(name: str, translation: Translation = TRANSLATION) -> dict[str, Any]:
    (found,) = [job.document for job in translation.jobs if job.name == name]
    return found


def test_comments_and_settings_above_a_job_apply_to_it() -> None:
    backup = document("backup")
    assert backup["tags"] == ["crontab", "Nightly backup, of everything"]
    assert backup["target"] == {
        "type": "shell",
        "command": ["/bin/bash", "-c", "/opt/backup.sh --full > /dev/null 2>&1"],
        "env": {"PATH": "/usr/local/bin:/usr/bin:$HOME/bin", "HOME": "/srv/app"},
    }
    assert (backup["max_retries"], backup["timeout_seconds"]) == (0, 86_400)
    assert document("poll")["tags"] == ["crontab"]
    assert document("minutely")["schedule"] == "* * * * *"
    assert document("seconds")["schedule"] == "every 90s"
    assert document("delayed")["jitter_seconds"] == 600 and "jitter_seconds" not in document("delayed-too-long")
    assert document("locked")["target"]["env"]["TZ"] == "America/New_York"
    assert document("earth")["target"]["command"][2] == "/opt/earth && date +%F"
    assert document("backup-2")["tags"] == ["crontab"]


def test_the_text_behind_a_percent_sign_reaches_the_command_as_cron_would_send_it() -> None:
    translation = translated("@daily cat%Hello,%%World\\%\n@daily cat; echo end # done%DETENT_STDIN%x\n")
    first, second = (job.document["target"]["command"] for job in translation.jobs)
    assert subprocess.check_output(["/bin/sh", "-c", first]) == b"Hello,\n\nWorld%\n"
    assert subprocess.check_output(["/bin/sh", "-c", second]) == b"DETENT_STDIN\nx\nend\n"


def test_a_system_crontab_has_a_user_in_every_line() -> None:
    text = "SHELL=/bin/sh\n17 * * * * root cd / && run-parts --report /etc/cron.hourly\n@daily www-data:web /opt/x\n"
    users = {"root", "www-data"}
    assert has_user_column(text, users)
    assert not has_user_column("0 5 * * * root\n0 5 * * * /opt/x y\n", users)
    assert not has_user_column("0 5 * * * mail -s x y\n", users)
    assert not has_user_column("# nothing\n", users)
    translation = translated(text, user_column=True)
    hourly, other = translation.jobs
    assert (hourly.name, hourly.document["tags"]) == ("cron-hourly", ["crontab", "user:root"])
    assert (other.name, other.document["tags"]) == ("x", ["crontab", "user:www-data"])
    assert "as the user of the worker" in " ".join(translation.verdicts[1].sentences)


def test_commands_can_become_calls_of_an_address() -> None:
    translation = translated(
        "A=1\n0 5 * * * root /opt/x%in\n", user_column=True, url="https://run.example.org/{name}", queue="cron"
    )
    (job,) = translation.jobs
    assert job.document["target"] == {"type": "http", "url": "https://run.example.org/x"}
    assert job.document["payload"] == {"command": "/opt/x", "env": {"A": "1"}, "stdin": "in", "user": "root"}
    assert job.document["queue"] == "cron"
    assert not any("--allow-shell" in note for note in translation.notes)
    assert any("--allow-shell" in note for note in translated("0 5 * * * x\n").notes)


def test_without_jobs_there_is_nothing_to_note() -> None:
    assert translated("# empty\n").notes == [] and translated("").verdicts == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("nice -n 10 flock -n /run/x /usr/bin/python3 /opt/report.py -v", "report"),
        ("test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )", "cron-daily"),
        ("/usr/bin/mysqldump -u root db | gzip > /b.gz", "mysqldump"),
        ("[ -x /usr/lib/php/x ] && if [ ! -d /run/s ]; then /usr/lib/php/sessionclean; fi", "sessionclean"),
        ("FOO=1 ./backup.sh --full", "backup"),
        ("sudo -u www-data php artisan schedule:run", "artisan"),
        ("timeout 5m java -jar app.jar", "app"),
        ("bash -c 'echo hi'", "bash"),
        ("sleep 30; curl -s https://example.org/", "curl"),
        ("/opt/täsk", "täsk"),
        ("cd /", "line-1"),
    ],
)
def test_a_name_is_what_a_person_would_call_the_command(command: str, name: str) -> None:
    assert name_for(command, "line-1") == name
