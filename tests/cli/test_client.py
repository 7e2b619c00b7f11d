"""The client against real sockets: what it sends, what it makes of the answers, and how it survives bad ones."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from detent import errors
from detent.client import JsonClient
from detent.contract.job import Job
from detent.contract.run import Run
from tests.cli.contract_server import Answer, ContractServer, good, problem


@pytest.fixture
def client(server: ContractServer) -> Iterator[JsonClient]:
    with JsonClient(server.url, "secret-key") as made:
        yield made


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_contract_server_answers_in_the_shapes_of_the_contract(server: ContractServer) -> None:
    job = server.add_job("hello")
    assert set(job) == {field.name for field in msgspec.structs.fields(Job)}
    assert set(server.add_run(job, "dead")) == {field.name for field in msgspec.structs.fields(Run)}


def test_a_job_goes_through_its_whole_life(client: JsonClient, server: ContractServer) -> None:
    made = client.create_job({"name": "hello", "schedule": "@daily", "target": {"type": "http", "url": "http://h/"}})
    assert client.get_job("hello")["id"] == made["id"]
    assert client.list_jobs().page()["items"] == [made]
    assert client.pause_job("hello", "too loud")["status"] == "paused"
    assert server.requests[-1].body == {"reason": "too loud"}
    assert client.resume_job(made["id"])["status"] == "active"
    run = client.trigger_job("hello")
    assert list(client.list_runs("hello")) == list(client.list_runs()) == [client.get_run(run["id"])]
    assert client.cancel_run(run["id"])["status"] == "cancelled"
    assert client.delete_job("hello") == {}
    with pytest.raises(errors.NotFound, match="There is no job 'hello'"):
        client.get_job("hello")


def test_putting_a_job_names_it_in_the_path(client: JsonClient, server: ContractServer) -> None:
    client.upsert_job({"name": "a/b c", "schedule": "@daily", "target": {}})
    assert (server.requests[0].method, server.requests[0].path) == ("PUT", "/api/v1/jobs/by-name/a%2Fb%20c")


def test_the_server_itself_can_be_asked(client: JsonClient) -> None:
    assert client.version()["version"] == "9.9.9"
    assert client.liveness() == {"status": "ok"}
    assert client.readiness()["checks"]["database"]["ok"] is True


def test_a_server_that_is_not_ready_still_says_what_is_missing(client: JsonClient, server: ContractServer) -> None:
    check = {"ok": False, "why": "It does not answer.", "needed": True}
    server.answers.append(good({"status": "not ready", "checks": {"database": check}}, 503))
    assert client.readiness()["checks"] == {"database": check}


def test_the_key_and_the_version_are_sent(client: JsonClient, server: ContractServer) -> None:
    client.version()
    assert server.requests[0].headers["Authorization"] == "Bearer secret-key"
    assert server.requests[0].headers["User-Agent"].startswith("detent/")


def test_calls_share_one_connection(client: JsonClient, server: ContractServer) -> None:
    for _ in range(3):
        client.version()
    assert len({request.port for request in server.requests}) == 1


def test_a_prefix_in_the_address_is_kept(server: ContractServer) -> None:
    with JsonClient(f"{server.url}/detent/") as client, pytest.raises(errors.NotFound):
        client.get_job("x")
    assert server.requests[0].path == "/detent/api/v1/jobs/x"


def test_proxies_of_the_environment_are_not_used(server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    with JsonClient(server.url) as client:
        assert client.version()


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (400, errors.UsageError),
        (401, errors.NotAuthorised),
        (403, errors.NotAuthorised),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (412, errors.Conflict),
        (413, errors.UsageError),
        (415, errors.UsageError),
        (422, errors.UsageError),
        (429, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_a_refusal_is_the_error_of_its_status(
    client: JsonClient, server: ContractServer, status: int, meaning: type[errors.DetentError]
) -> None:
    server.answers.append(problem(status, "Because of this."))
    with pytest.raises(meaning) as caught:
        client.list_jobs().page()
    assert type(caught.value) is meaning
    assert caught.value.message == "Because of this."


def test_a_wrong_document_keeps_the_pointer_to_its_wrong_part(client: JsonClient, server: ContractServer) -> None:
    server.answers.append(problem(422, "No such zone.", "/timezone"))
    with pytest.raises(errors.UsageError) as caught:
        client.create_job({})
    assert caught.value.pointer == "/timezone"


def test_a_fault_of_the_server_names_its_trace(client: JsonClient, server: ContractServer) -> None:
    server.answers.append(problem(500, "Something broke."))
    with pytest.raises(errors.DetentError, match=r"Something broke\. \(trace 0af7651916cd\)") as caught:
        client.list_jobs().page()
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>hello</html>", "text/html"),
        Answer(404, b"not here", "text/plain"),
        Answer(200, b"{", "application/json"),
        Answer(200, b"[1]", "application/json"),
        Answer(200, b"\xff", "application/json"),
        Answer(302, b"", "text/html"),
    ],
)
def test_what_is_not_a_detent_server_is_distinguished(
    client: JsonClient, server: ContractServer, answer: Answer
) -> None:
    server.answers.append(answer)
    with pytest.raises(errors.Unavailable, match="is not a detent server"):
        client.list_jobs().page()


def test_without_a_server_the_error_says_how_to_start_one() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with JsonClient(url) as client, pytest.raises(errors.Unavailable) as caught:
        client.list_jobs().page()
    assert caught.value.message == (
        f"No detent server answers at {url}: start one with `detent serve`, or set DETENT_API_URL."
    )


def test_an_unknown_host_is_unavailable_and_named() -> None:
    with JsonClient("http://no-such-host.invalid:1") as client, pytest.raises(errors.Unavailable, match="not known"):
        client.list_jobs().page()


def test_a_connection_that_died_between_two_calls_is_replaced(client: JsonClient, server: ContractServer) -> None:
    server.answers.append(good({"items": [], "next_cursor": None})._replace(hang_up=True))
    client.list_jobs().page()
    assert select.select([client._connection._connection.sock], [], [], 10)[0], "the server has not hung up"
    assert client.trigger_job(server.add_job("hello")["id"])["status"] == "pending"
    assert len({request.port for request in server.requests}) == 2


def test_a_lost_answer_is_asked_for_again_only_where_that_is_harmless(
    client: JsonClient, server: ContractServer
) -> None:
    job = server.add_job("hello")
    client.version()
    server.answers.append(Answer(0, b"", hang_up=True))
    assert client.get_job("hello") == job
    server.answers.append(Answer(0, b"", hang_up=True))
    with pytest.raises(errors.Unavailable, match="hung up"):
        client.pause_job("hello")
    assert job["status"] == "active"


def test_what_takes_effect_once_is_sent_again_under_the_same_key(client: JsonClient, server: ContractServer) -> None:
    server.add_job("hello")
    client.version()
    server.answers.append(Answer(0, b"", hang_up=True))
    assert client.trigger_job("hello")["status"] == "pending"
    first, second = (request.headers["Idempotency-Key"] for request in server.requests[-2:])
    assert first == second


def test_fields_that_this_version_does_not_know_are_kept(client: JsonClient, server: ContractServer) -> None:
    server.add_job("hello", from_the_future={"a": 1})
    assert client.get_job("hello")["from_the_future"] == {"a": 1}
    assert [job["from_the_future"] for job in client.list_jobs()] == [{"a": 1}]


def test_a_server_that_does_not_answer_in_time_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            JsonClient(url, timeout=0.05) as client,
            pytest.raises(errors.Unavailable, match=r"did not answer within 0\.05 s"),
        ):
            client.list_jobs().page()


def test_an_answer_that_stops_halfway_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")

        thread = threading.Thread(target=answer)
        thread.start()
        with JsonClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client, pytest.raises(errors.Unavailable):
            client.list_jobs().page()
        thread.join()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8787", "ftp://host", "http://", "http://host:port"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(errors.UsageError, match="is not the address of a server"):
        JsonClient(url)


def test_the_password_of_an_address_is_not_shown() -> None:
    url = f"http://user:hidden@127.0.0.1:{closed_port()}"
    with JsonClient(url) as client, pytest.raises(errors.Unavailable) as caught:
        client.list_jobs().page()
    assert "hidden" not in caught.value.message


def test_what_json_cannot_say_is_refused_before_it_is_sent(client: JsonClient, server: ContractServer) -> None:
    for document in ({"payload": float("nan")}, {"payload": object()}, {"payload": "\ud800"}):
        with pytest.raises(errors.UsageError, match="JSON"):
            client.create_job(document)
    assert server.requests == []


def test_gathering_goes_on_over_as_many_pages_as_it_takes(client: JsonClient, server: ContractServer) -> None:
    for number in range(1203):
        server.add_job(f"job-{number}")
    page = client.list_jobs().gather(1100)
    assert len(page["items"]) == 1100
    assert len(client.list_jobs().gather(5000, page["next_cursor"])["items"]) == 103
    assert [request.query.get("limit") for request in server.requests] == [["500"], ["500"], ["100"], ["500"]]
