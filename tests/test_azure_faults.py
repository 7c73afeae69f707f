"""What people see when Azure does not do what was asked: one clear error, soon, and never a secret."""

from __future__ import annotations

import logging
import re
import threading
import time
import traceback
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.storage.blob import AccountSasPermissions, BlobServiceClient, ResourceTypes, generate_account_sas

from dagkit.azure.account import Account, find_account, parse_connection_string
from dagkit.azure.clock import ServiceClock
from dagkit.azure.faults import explain, redact
from dagkit.azure.identity import chain_findings
from dagkit.azure.place import Place
from dagkit.errors import BackendError, ConfigError, DagkitError, UnknownRun
from dagkit.queues import open_transport
from dagkit.queues.base import OutMessage
from dagkit.stores import open_store
from services.faulty_proxy import Fault, faulty
from services.processes import free_ports

azurite_tests = pytest.mark.xdist_group("azurite")


def sas_string(account, *, expired=False, permission="rwdlacup"):
    """A connection string with a SAS in place of the key."""
    now = datetime.now(timezone.utc)
    sas = generate_account_sas(
        account.name,
        account.key,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions.from_string(permission),
        now - timedelta(minutes=5) if expired else now + timedelta(hours=1),
        start=now - timedelta(hours=1),
        services="bqt",
    )
    return f"{account.endpoints}SharedAccessSignature={sas}"


def everything(url, make, limit=10):
    """Calls of each part of the store and of the queues, at most so many; what each of them raised."""
    store = open_store(url)
    calls = [
        lambda: store.create("w", make.definition("w"), make.state("w")),
        lambda: store.load("w"),
        lambda: store.rows(),
        lambda: store.row("w"),
        lambda: store.put_output("w", "t.json", b"1"),
        lambda: store.append_log("w", "t", "0.1", 0, b"x"),
        lambda: store.acquire_lease("coordinator", "me", 60),
        lambda: store.leases(),
    ]
    transport = open_transport(url)
    calls += [lambda: transport.open("cpu").send_batch([OutMessage("a", "{}")]), transport.names]
    raised = [caught(call) for call in calls[:limit]]
    transport.close()
    store.close()
    return raised


def caught(call):
    try:
        call()
    except UnknownRun:
        return None
    except BackendError as error:
        return error
    return None


class Make:
    @staticmethod
    def definition(workflow_id):
        return {"v": 1, "workflow_id": workflow_id, "name": "n", "default_queue": "cpu", "tasks": {}}

    @staticmethod
    def state(workflow_id):
        return {"v": 1, "workflow_id": workflow_id, "workflow_state": "pending", "tasks": {}}


# --- with a real service


@azurite_tests
def test_a_sas_is_as_good_as_a_key(azurite_account, monkeypatch):
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", sas_string(azurite_account))

    assert everything(f"azure://{azurite_account.name}/Proj", Make) == [None] * 10


@azurite_tests
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda account: sas_string(account, expired=True), "the SAS of JOBQ_CONNECTION_STRING has expired"),
        (lambda account: sas_string(account, permission="r"), "no right to do this"),
        (
            lambda account: account.connection_string.replace(account.key, "d3Jvbmc="),
            "the key of JOBQ_CONNECTION_STRING is not accepted",
        ),
    ],
    ids=["expired SAS", "no rights", "wrong key"],
)
def test_bad_credentials_are_one_clear_error_each(azurite_account, monkeypatch, spoil, words):
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", spoil(azurite_account))
    started = time.monotonic()

    raised = [error for error in everything(f"azure://{azurite_account.name}/Proj", Make) if error]

    assert raised
    assert all(words in str(error) and azurite_account.name in str(error) for error in raised), raised
    assert time.monotonic() - started < 20


@azurite_tests
def test_a_place_where_nobody_listens_is_one_clear_error_each(azurite_account, monkeypatch):
    closed = Account("gone", *(f"http://127.0.0.1:{port}/gone" for port in free_ports(3)))
    text = f"AccountName=gone;AccountKey=a2V5;BlobEndpoint={closed.blob};QueueEndpoint={closed.queue};"
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", f"{text}TableEndpoint={closed.table}")
    started = time.monotonic()

    raised = everything("azure://gone/Proj", Make)

    assert all("nobody listens at" in str(error) for error in raised)
    assert time.monotonic() - started < 20


@azurite_tests
def test_a_container_that_is_being_deleted_says_so(azurite_account, monkeypatch):
    with faulty(azurite_account) as (account, (blob, _, _)):
        monkeypatch.setenv("JOBQ_CONNECTION_STRING", account.connection_string)
        blob.faults.append(Fault("answer", status=409, code="ContainerBeingDeleted", times=99))
        store = open_store(f"azure://{account.name}/Proj")

        with pytest.raises(BackendError, match="is being deleted"):
            store.put_output("w", "t.json", b"1")
        store.close()


@azurite_tests
@pytest.mark.parametrize("secret", ["key", "sas"])
def test_no_secret_is_in_errors_logs_urls_or_state(azurite_account, monkeypatch, caplog, secret):
    """The canary: everything at DEBUG, with a service that refuses, breaks off and is gone in turn."""
    for logger in (None, "azure", "urllib3"):
        caplog.set_level(logging.DEBUG, logger)
    with faulty(azurite_account) as (account, proxies):
        text = account.connection_string if secret == "key" else sas_string(account)
        monkeypatch.setenv("JOBQ_CONNECTION_STRING", text)
        found = parse_connection_string(text, "X")
        shown = [repr(found), str(found), repr(open_store(f"azure://{account.name}/Proj"))]
        for calls, fault in (
            (10, Fault("answer", status=403, code="AuthenticationFailed", times=1_000)),
            (1, Fault("cut", times=1_000)),
            (1, Fault("answer", times=1_000)),
        ):
            for proxy in proxies:
                proxy.faults = [replace(fault)]
            shown += seen_of_errors(account, calls)
        for proxy in proxies:
            proxy.close()
        shown += seen_of_errors(account, 10)
    shown.append(caplog.text)
    shown += [f"{record.msg} {record.args}" for record in caplog.records]

    assert len(shown) > 20
    assert found.secrets
    assert not [secret for secret in found.secrets for text in shown if secret in text]


def seen_of_errors(account, calls):
    return [whole(error) for error in everything(f"azure://{account.name}/Proj", Make, calls) if error]


def whole(error):
    """An error with everything that can be seen of it: its traceback, its cause, its context."""
    assert error.__cause__ is None
    assert error.__context__ is None
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.args)


@azurite_tests
def test_what_is_stored_and_sent_has_no_secret(azurite_account, monkeypatch):
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", sas_string(azurite_account))
    store = open_store(f"azure://{azurite_account.name}/Proj")
    store.create("w", Make.definition("w"), Make.state("w"))
    store.acquire_lease("coordinator", "me", 60)

    with BlobServiceClient.from_connection_string(azurite_account.connection_string) as client:
        container = client.get_container_client("proj-workflows")
        stored = [container.download_blob(blob.name).readall() for blob in container.list_blobs(include=["metadata"])]
        metadata = [str(blob.metadata) for blob in container.list_blobs(include=["metadata"])]

    assert "sig=" not in f"{stored}{metadata}{store.url}"
    store.close()


# --- without one


@pytest.mark.parametrize(
    "text",
    [
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net",
        "azure://acct/Proj?sv=2024&sig=c2VjcmV0",
        "BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=c2VjcmV0",
    ],
)
@pytest.mark.parametrize("opened", [open_store, open_transport, Place.parse])
def test_a_secret_in_an_address_is_refused_and_not_repeated(text, opened):
    with pytest.raises(ConfigError, match="JOBQ_CONNECTION_STRING") as caught:
        opened(text)

    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("azure://", "missing"),
        ("azure://acct", "the prefix is missing"),
        ("azure://Acct/Proj", "lower-case"),
        ("azure://acct/pro-j", "a prefix is a letter"),
        ("azure://acct/a/b", "a prefix is a letter"),
        ("azure://acct/Proj?blobs=acct2/X", "container name"),
        ("azure://acct/Proj?other=1", "only blobs="),
    ],
)
def test_an_address_that_means_nothing_is_refused(url, words):
    with pytest.raises(DagkitError, match=words):
        open_store(url)


def test_places_come_back_from_their_urls():
    for url in ("azure://acct/Proj", "azure://acct", "azure://acct/Proj?blobs=acct2/files"):
        assert Place.parse(url).url == url
    assert Place.parse("azure:acct/Proj").url == "azure://acct/Proj"
    assert Place.parse("azure://acct/Proj", "other/files").url == "azure://acct/Proj?blobs=other/files"


def test_a_queue_name_that_the_service_does_not_take_is_refused_before_it_is_asked():
    transport = open_transport("azure://acct/Proj")

    for name in ("GPU", "a", "a--b", "a/b", "ü-queue", "x" * 64):
        with pytest.raises(ConfigError, match="storage queue"):
            transport.open(name)
    transport.close()


ACCOUNTS = {  # environment -> (endpoint of the blobs, what signs in)
    "a bare name": ({}, "https://acct.blob.core.windows.net", "identity"),
    "a connection string": (
        {"JOBQ_CONNECTION_STRING": "AccountName=acct;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"},
        "https://acct.blob.core.chinacloudapi.cn",
        "key",
    ),
    "a connection string of another account": (
        {"JOBQ_CONNECTION_STRING": "AccountName=other;AccountKey=a2V5"},
        "https://acct.blob.core.windows.net",
        "identity",
    ),
    "one for each account": (
        {
            "JOBQ_CONNECTION_STRING": "AccountName=other;AccountKey=a2V5",
            "DAGKIT_CONNECTION_STRING_ACCT": "AccountName=acct;AccountKey=a2V5",
        },
        "https://acct.blob.core.windows.net",
        "key",
    ),
    "a SAS": (
        {"JOBQ_CONNECTION_STRING": "BlobEndpoint=https://acct.blob.x.net/;SharedAccessSignature=?sv=1&sig=a2V5"},
        "https://acct.blob.x.net",
        "sas",
    ),
    "endpoints alone": (
        {"JOBQ_CONNECTION_STRING": "AccountName=acct;BlobEndpoint=https://private.example"},
        "https://private.example",
        "identity",
    ),
    "the variables of az": (
        {"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_KEY": "a2V5"},
        "https://acct.blob.core.windows.net",
        "key",
    ),
    "a SAS in the variables of az": (
        {"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=a2V5"},
        "https://acct.blob.core.windows.net",
        "sas",
    ),
}


@pytest.mark.parametrize(("environ", "blob", "how"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_an_account_is_found_by_its_name(environ, blob, how):
    account = find_account("acct", environ)

    assert (account.name, account.blob) == ("acct", blob)
    assert {"key": account.key, "sas": account.sas, "identity": account.source == "azure-identity"}.get(how) or (
        how == "identity" and not account.secrets
    )


@pytest.mark.parametrize("environ", [{}, {"JOBQ_CONNECTION_STRING": "UseDevelopmentStorage=true"}])
def test_the_emulator_is_on_this_machine_with_ports_of_its_own(environ):
    account = find_account("devstoreaccount1", {**environ, "QUEUE_PORT": "5"})

    assert account.blob == "http://127.0.0.1:10000/devstoreaccount1"
    assert account.queue == "http://127.0.0.1:5/devstoreaccount1"
    assert account.is_local


def test_a_connection_string_that_is_none_is_named_by_its_variable():
    with pytest.raises(ConfigError, match="JOBQ_CONNECTION_STRING is not a storage connection string") as caught:
        find_account("acct", {"JOBQ_CONNECTION_STRING": "hello secret"})

    assert "secret" not in str(caught.value)


def response(status, code):
    error = HttpResponseError("said\nRequestId:1")
    error.status_code, error.error_code = status, code
    return error


ACCOUNT = find_account("acct", {})
FAULTS = [
    (response(403, "AuthorizationPermissionMismatch"), "Storage Blob Data Contributor"),
    (response(403, "KeyBasedAuthenticationNotPermitted"), "takes no keys"),
    (response(404, "TableNotFound"), "the index table is not there"),
    (response(404, "QueueNotFound"), "the queue is not there"),
    (response(503, "ServerBusy"), "busy or ill"),
    (response(400, "InvalidInput"), r"refused \(400 InvalidInput\): said\."),
    (ServiceRequestError("Failed to resolve 'acct.blob.core.windows.net' ([Errno -2])"), "Is the account's name right"),
    (ServiceRequestError("Connection refused"), "cannot be reached"),
    (ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token"), "az login"),
]


@pytest.mark.parametrize(("error", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_every_fault_says_what_where_and_what_now(error, words):
    text = str(explain(error, ACCOUNT, "saving run w"))

    assert text.startswith("saving run w: storage account acct: ")
    assert re.search(words, text), text


def test_signatures_are_cut_out_of_texts():
    text = redact("GET /c/b?sv=1&sig=abc%3D&x=1 AccountKey=k2Vy==; key", ["key"])

    assert text == "GET /c/b?sv=1&sig=***&x=1 AccountKey=***; ***"


def test_every_credential_of_the_chain_is_heard(monkeypatch):
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)

    said = {name: (gave, text) for name, gave, text in chain_findings()}

    assert {"EnvironmentCredential", "ManagedIdentityCredential", "AzureCliCredential"} <= set(said)
    assert all(text for _, text in said.values())
    assert not any(gave for gave, _ in said.values())


# --- the clock


def test_the_clock_of_a_service_is_narrowed_by_its_answers():
    clock, skew = ServiceClock(), 3_600.0
    base = int(time.time())
    offset = base - time.monotonic()

    def answer_at(moment, latency=0.01):
        """An answer of a service that is an hour ahead, whose clock said `moment` past `base`."""
        date = datetime.fromtimestamp(int(base + moment) + skew, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        sent = base + moment - offset - latency / 2
        clock.observe(date, sent, sent + latency)

    answer_at(0.5)
    assert clock.now() == pytest.approx(time.monotonic() + offset + skew, abs=0.6)
    for moment in (0.95, 1.02, 1.5, 1.99, 2.01):
        answer_at(moment)
    assert clock.now() == pytest.approx(time.monotonic() + offset + skew, abs=0.06)


def test_a_clock_that_was_set_is_believed_again():
    clock, now = ServiceClock(), time.monotonic()
    clock.observe("Tue, 01 Dec 2026 12:00:00 GMT", now, now + 0.01)
    before = clock.now()

    clock.observe("Tue, 01 Dec 2026 13:00:00 GMT", now, now + 0.01)

    assert clock.now() - before == pytest.approx(3600, abs=1)


def test_an_answer_without_a_date_says_nothing():
    clock = ServiceClock()

    clock.observe(None, 0, 1)
    clock.observe("yesterday", 0, 1)

    assert not clock.is_known
    assert clock.now() == pytest.approx(time.time(), abs=1)


def test_the_clock_is_safe_for_threads():
    clock, now = ServiceClock(), time.monotonic()
    threads = [
        threading.Thread(target=clock.observe, args=("Tue, 01 Dec 2026 12:00:00 GMT", now, now + 0.1)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert clock.is_known
