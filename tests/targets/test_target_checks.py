"""What registration refuses, and what it says."""

from __future__ import annotations

import pytest

from detent.domain.job import HttpTarget, PythonTarget, ShellTarget
from detent.domain.secret_ref import SecretRef
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError, check_url, parse_url

GOOD_URLS = [
    ("http://example.com", "example.com", 80),
    ("https://example.com/hook?x=1#part", "example.com", 443),
    ("HTTPS://EXAMPLE.com:8443/", "example.com", 8443),
    ("http://localhost:8787/echo", "localhost", 8787),
    ("http://127.0.0.1:1/", "127.0.0.1", 1),
    ("http://[::1]:65535/", "::1", 65535),
    ("http://[2606:4700::1111]/", "2606:4700::1111", 80),
    ("http://my_service.internal/", "my_service.internal", 80),
    ("http://bücher.example/", "xn--bcher-kva.example", 80),
    ("http://example.com./", "example.com.", 80),
    ("http://1e100.net/", "1e100.net", 80),
    ("http://4.3.2.1.in-addr.arpa/", "4.3.2.1.in-addr.arpa", 80),
    ("http://example.com/a@b", "example.com", 80),
    ("http://example.com?@10.0.0.1/", "example.com", 80),
    ("http://example.com#@10.0.0.1/", "example.com", 80),
    ("http://example.com/ü?q=%20", "example.com", 80),
]

BAD_URLS = [
    ("", "no scheme"),
    ("example.com/path", "no scheme"),
    ("//example.com/", "no scheme"),
    ("ftp://example.com/", "only http and https"),
    ("file:///etc/passwd", "only http and https"),
    ("gopher://127.0.0.1:6379/_x", "only http and https"),
    ("javascript:alert(1)", "only http and https"),
    ("http:example.com", "no host"),
    ("http:/example.com", "no host"),
    ("http://", "no host"),
    ("http:///path", "no host"),
    ("http://?x", "no host"),
    ("http://:80/", "no host"),
    ("http://user@example.com/", "user name or password"),
    ("http://user:secret@example.com/", "user name or password"),
    ("http://example.com@127.0.0.1/", "user name or password"),
    ("http://127.0.0.1:80@example.com/", "user name or password"),
    ("http://example.com\\@127.0.0.1/", "backslash"),
    ("http:\\\\example.com", "backslash"),
    ("http://exam ple.com/", "a space"),
    ("http://example.com/a b", "a space"),
    (" http://example.com/", "a space"),
    ("http://exam\tple.com/", "a tab"),
    ("http://example.com/\r\nX: y", "a line break"),
    ("http://example.com/\0", "a NUL"),
    ("http://example.com/\x7f", "U+007F"),
    ("http://example.com/\u2028", "U+2028"),
    ("http://example.com\u3000/", "U+3000"),
    ("http://example.com:0/", "from 1 to 65535"),
    ("http://example.com:65536/", "from 1 to 65535"),
    ("http://example.com:/", "from 1 to 65535"),
    ("http://example.com:http/", "from 1 to 65535"),
    ("http://example.com:+80/", "from 1 to 65535"),
    ("http://example.com:8_0/", "from 1 to 65535"),
    ("http://example.com:\u0663/", "from 1 to 65535"),
    ("http://::1/", "brackets"),
    ("http://[::1/", "cannot be read"),
    ("http://[::1]x/", "cannot be read"),
    ("http://127.1/", "plain IP address"),
    ("http://127.0.1/", "plain IP address"),
    ("http://0x7f.1/", "plain IP address"),
    ("http://0x7f000001/", "plain IP address"),
    ("http://0X7F.0.0.1/", "plain IP address"),
    ("http://2130706433/", "plain IP address"),
    ("http://017700000001/", "plain IP address"),
    ("http://0177.0.0.1/", "plain IP address"),
    ("http://127.0.0.01/", "plain IP address"),
    ("http://127.0.0.1./", "plain IP address"),
    ("http://0/", "plain IP address"),
    ("http://256.1.1.1/", "plain IP address"),
    ("http://1.2.3.4.5/", "plain IP address"),
    ("http://example.0x1/", "plain IP address"),
    ("http://①②⑦.⓪.⓪.①/", "plain IP address"),
    ("http://\uff11\uff12\uff17.0.0.1/", "plain IP address"),
    ("http://127。0。0。1/", "plain IP address"),
    ("http://[1.2.3.4]/", "IPv6"),
    ("http://[fe80::1%25eth0]/", "plain IP address"),
    ("http://[v1.x]/", "plain IP address"),
    ("http://%31%32%37.0.0.1/", "not a valid host name"),
    ("http://exa%6dple.com/", "not a valid host name"),
    ("http://a..b/", "not a valid host name"),
    ("http://a*b/", "not a valid host name"),
    ("http://" + "a" * 64 + ".com/", "not a valid host name"),
    ("http://" + "a." * 150 + "com/", "not a valid host name"),
    ("http://169.254.169.254/latest/meta-data", "cloud metadata"),
    ("http://[::ffff:169.254.169.254]/", "cloud metadata"),
    ("http://[fd00:ec2::254]/", "cloud metadata"),
    ("http://0.0.0.0/", "unspecified"),
]


@pytest.mark.parametrize(("url", "host", "port"), GOOD_URLS)
def test_a_plain_url_is_read_as_the_host_that_will_be_called(url: str, host: str, port: int) -> None:
    parsed = parse_url(url)
    assert (parsed.raw_host, parsed.port) == (host, port)


@pytest.mark.parametrize(("url", "words"), BAD_URLS)
def test_an_ambiguous_or_hopeless_url_is_refused_with_a_sentence(url: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_url(url)
    assert caught.value.pointer == "/target/url"
    assert words in caught.value.message
    assert caught.value.message.endswith(".")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "name",
    [
        "Detent-Run-Id",
        "detent-token",
        "DETENT-ANYTHING",
        "Idempotency-Key",
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Upgrade",
    ],
)
def test_a_header_that_is_not_the_users_is_refused(name: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_target(HttpTarget(url="http://example.com", headers={name: "x"}))
    assert caught.value.pointer == f"/target/headers/{name}"
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("name", "value", "pointer"),
    [
        ("X-Good", "a\r\nb", "/target/headers/X-Good"),
        ("X-Good", "a\nb", "/target/headers/X-Good"),
        ("X-Good", "a\0b", "/target/headers/X-Good"),
        ("X-Good", "a\x1bb", "/target/headers/X-Good"),
        ("", "x", "/target/headers/"),
        ("A B", "x", "/target/headers/A B"),
        ("A\r\nB", "x", "/target/headers/A\r\nB"),
        ("A/B~", "x", "/target/headers/A~1B~0"),
        ("Ä", "x", "/target/headers/Ä"),
    ],
)
def test_a_header_that_could_break_the_request_is_refused(name: str, value: str, pointer: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_target(HttpTarget(url="http://example.com", headers={name: value}))
    assert caught.value.pointer == pointer


def test_headers_that_differ_only_by_case_are_refused() -> None:
    with pytest.raises(TargetError, match="twice"):
        check_target(HttpTarget(url="http://example.com", headers={"X-A": "1", "x-a": "2"}))


def test_too_many_headers_are_refused() -> None:
    with pytest.raises(TargetError, match="at most 16384") as caught:
        check_target(HttpTarget(url="http://example.com", headers={"X-A": "a" * 16_384}))
    assert caught.value.pointer == "/target/headers"


def test_ordinary_headers_are_accepted() -> None:
    headers: dict[str, str | SecretRef] = {
        "X-Api-Key": SecretRef("payments"),
        "Authorization": "Bearer x",
        "X-Colour": "grün\tund gut",
        "Content-Type": "text/plain",
    }
    check_target(HttpTarget(url="http://example.com", headers=headers))


@pytest.mark.parametrize("function", ["report", "package.module:name", "_x.y", "billing.close_day:Close.run"])
def test_a_function_name_is_accepted(function: str) -> None:
    check_target(PythonTarget(function=function))


@pytest.mark.parametrize("function", ["a b", "os;system", "1x", "a:b:c", "a:", "../x", "a-b", "a\n"])
def test_what_is_no_function_name_is_refused(function: str) -> None:
    with pytest.raises(TargetError, match="not a function name") as caught:
        check_target(PythonTarget(function=function))
    assert caught.value.pointer == "/target/function"


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        (ShellTarget(command="echo \0"), "/target/command"),
        (ShellTarget(command=" \n"), "/target/command"),
        (ShellTarget(command=["echo", "a\0"]), "/target/command/1"),
        (ShellTarget(command=["", "a"]), "/target/command/0"),
        (ShellTarget(command="x", env={"A=B": "1"}), "/target/env/A=B"),
        (ShellTarget(command="x", env={"1A": "1"}), "/target/env/1A"),
        (ShellTarget(command="x", env={"": "1"}), "/target/env/"),
        (ShellTarget(command="x", env={"A": "\0"}), "/target/env/A"),
        (ShellTarget(command="x", env={"DETENT_TOKEN": "1"}), "/target/env/DETENT_TOKEN"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(target: ShellTarget, pointer: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_target(target)
    assert caught.value.pointer == pointer


def test_ordinary_commands_are_accepted() -> None:
    check_target(ShellTarget(command="echo $HOME | wc -c", env={"LC_ALL": "C", "_x1": ""}))
    check_target(ShellTarget(command=["printf", "%s", ""]))
