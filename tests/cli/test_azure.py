"""The program on an Azure store: what addresses mean, what doctor says, what purge leaves alone."""

from __future__ import annotations

import pytest

from dagkit.queues import open_transport
from dagkit.queues.base import OutMessage

pytestmark = pytest.mark.xdist_group("azurite")

ONE = "name: one\ndefault_queue: cpu\ntasks:\n- {name: a, kwargs: {cmd: echo hello}}\n"


@pytest.fixture
def place(project, azurite_account):
    """STORAGE/PREFIX of an empty account, as people write it before a command."""
    return f"{azurite_account.name}/Proj"


def checks(project, place, code=0):
    return {check["name"]: check for check in project.json(place, "doctor", code=code)["checks"]}


def test_a_bare_account_name_and_a_prefix_are_a_store(project, place):
    project.write("one.yaml", ONE)

    workflow_id = project.call(place, "submit", "one.yaml").stdout.strip()

    assert [row["workflow_id"] for row in project.json(place, "list")] == [workflow_id]
    assert project.json("--store", f"azure://{place}", "status", workflow_id)["status"] == "pending"


def test_a_connection_string_in_place_of_an_address_is_refused_and_not_shown(project, azurite_account):
    result = project.call("--store", azurite_account.connection_string, "list", code=2)

    assert "JOBQ_CONNECTION_STRING" in result.stderr
    assert azurite_account.key not in result.stderr


def test_a_worker_takes_from_the_account_that_stands_before_its_queue(project, place, azurite, monkeypatch):
    other = azurite.account()
    monkeypatch.setenv(f"DAGKIT_CONNECTION_STRING_{other.name.upper()}", other.connection_string)
    project.write("one.yaml", ONE)

    project.call(place, "worker", f"{other.name}/cpu", "--idle-timeout", "0.1")
    monkeypatch.setenv("JOBQ_STORAGE", other.name)
    project.call(place, "worker", "gpu", "--idle-timeout", "0.1")

    transport = open_transport(f"azure://{other.name}")
    assert {"cpu", "gpu", "proj-workflow-completions"} <= set(transport.names())
    transport.close()
    transport = open_transport(f"azure://{place}")
    assert transport.names() == []
    transport.close()


def test_queues_can_be_in_another_account(project, place, azurite, monkeypatch):
    other = azurite.account()
    monkeypatch.setenv(f"DAGKIT_CONNECTION_STRING_{other.name.upper()}", other.connection_string)
    monkeypatch.setenv("JOBQ_WORKFLOW_QUEUES", other.name)

    project.call(place, "worker", "cpu", "--idle-timeout", "0.1")

    transport = open_transport(f"azure://{other.name}")
    assert "cpu" in transport.names()
    transport.close()


@pytest.mark.parametrize("words", ["account1/cpu", "sb://namespace/cpu"])
def test_a_worker_without_a_store_is_told_what_is_missing(project, words):
    assert "JOBQ_WORKFLOW_PREFIX" in project.call("worker", words, code=2).stderr


def test_doctor_looks_at_every_part_and_leaves_nothing(project, place):
    before = checks(project, place)
    assert before["store: state"]["message"] == "proj-workflows is not there yet; the first run makes it"
    project.write("one.yaml", ONE)
    project.call(place, "submit", "one.yaml")

    found = checks(project, place, code=1)

    assert found["store: account"]["message"].endswith("credentials: JOBQ_CONNECTION_STRING")
    assert found["store: state"]["message"] == "proj-workflows can be written to"
    assert found["store: index"]["message"] == "ProjWorkflowsIndex can be read"
    assert found["coordinator"]["status"] == "fail"
    assert found["queues"]["message"] == "no message waits"


def test_doctor_says_what_each_credential_said_where_there_is_no_key(project, place, azurite_account, monkeypatch):
    """The endpoints are known, and nothing to sign in with."""
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    endpoints = azurite_account.endpoints.replace("http:", "https:")
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", f"AccountName={azurite_account.name};{endpoints}")

    result = project.call(place, "doctor", code=1)

    assert "store: identity: EnvironmentCredential: " in result.stdout
    assert "store: identity: AzureCliCredential: " in result.stdout
    assert "fail  store: state: " in result.stdout


def test_an_account_that_can_be_reached_with_a_key_only_says_so(project, place, azurite_account, monkeypatch):
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", f"AccountName={azurite_account.name};{azurite_account.endpoints}")

    assert "needs a key" in project.call(place, "list", code=2).stderr


def test_doctor_says_it_when_the_key_is_wrong(project, place, azurite_account, monkeypatch):
    wrong = azurite_account.connection_string.replace(azurite_account.key, "d3Jvbmc=")
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", wrong)

    found = checks(project, place, code=1)

    assert "the key of JOBQ_CONNECTION_STRING is not accepted" in found["store: state"]["message"]
    assert "d3Jvbmc=" not in str(found)


def test_purge_drains_the_queues_of_its_runs_and_no_others(project, place):
    project.write("one.yaml", ONE)
    project.call(place, "submit", "one.yaml")
    transport = open_transport(f"azure://{place}")
    for queue in ("cpu", "of-others"):
        transport.open(queue).send_batch([OutMessage("x", '{"id": "x"}')])

    document = project.json(place, "purge", "--all", "--drain-queues", "-y")

    assert document == {"workflows": 1, "tasks": 1, "queues": {"cpu": 1}}
    assert transport.open("of-others").stats().waiting == 1
    transport.close()
