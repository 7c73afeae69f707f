"""What `dagkit doctor` says of queues on Service Bus: rights and queues that are missing, nobody to sign in as."""

from __future__ import annotations

import pytest

from services.servicebus import Emulator, Namespace

pytestmark = [
    pytest.mark.xdist_group("servicebus"),
    # The SDK leaves the sockets of connections that failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

CANARY = "c2VjcmV0LWNhbmFyeQ=="
ONE = "name: one\ndefault_queue: cpu\ntasks: [{name: a, kwargs: {cmd: 'true'}}]\n"


@pytest.fixture
def namespace(servicebus: Emulator) -> Namespace:
    return servicebus.namespace(worker={"key": CANARY, "rights": ["Send", "Listen"]})


@pytest.fixture
def use(namespace: Namespace, monkeypatch: pytest.MonkeyPatch):
    """Work on the namespace with a policy and a key."""

    def chosen(policy: str | None = None, key: str | None = None) -> None:
        words = namespace.environment() if policy is None else namespace.environment(policy, key)
        for name, value in {**words, "JOBQ_WORKFLOW_QUEUES": namespace.url}.items():
            monkeypatch.setenv(name, value)

    return chosen


def said(project, code: int) -> list[tuple[str, str, str]]:
    found = project.json("doctor", code=code)["checks"]
    return [(one["name"], one["status"], one["message"]) for one in found if one["name"].startswith("queues")]


def test_a_policy_that_may_manage_sees_all_queues(project, namespace, use) -> None:
    use()
    for queue in ("cpu", "workflow-completions"):
        namespace.create(queue)

    assert ("queues: namespace", "pass", f"{namespace.url} has 2 queues") in said(project, 0)


def test_a_policy_without_manage_is_no_failure_if_the_queues_are_there(project, namespace, use) -> None:
    project.write("one.yaml", ONE)
    project.call("submit", "one.yaml")
    for queue in ("cpu", "workflow-completions"):
        namespace.create(queue)
    use("worker")

    found = said(project, 1)  # no coordinator is there for the run

    assert ("queues: namespace", "pass") in [one[:2] for one in found]
    assert {one[1:] for one in found[1:]} == {("pass", "cpu can be used"), ("pass", "workflow-completions can be used")}


def test_a_queue_that_is_missing_is_named_with_the_command_that_makes_it(project, namespace, use) -> None:
    project.write("one.yaml", ONE)
    project.call("submit", "one.yaml")
    namespace.create("workflow-completions")
    use("worker")

    (failure,) = [one for one in said(project, 1) if one[1] == "fail"]

    assert "cpu" in failure[2]
    assert "az servicebus queue create" in failure[2]


def test_a_key_that_is_wrong_is_a_failure_without_the_key(project, namespace, use) -> None:
    namespace.create("workflow-completions")
    use("worker", "d3JvbmcgY2FuYXJ5")

    result = project.call("doctor", code=1)

    assert "is not accepted" in result.stdout
    assert "d3JvbmcgY2FuYXJ5" not in result.stdout + result.stderr


def test_what_each_credential_said_where_there_is_no_key(project, namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JOBQ_WORKFLOW_QUEUES", "sb://dagkit-nobody")
    monkeypatch.setenv("DAGKIT_SERVICEBUS_ADMIN", "https://127.0.0.1:9")

    result = project.call("doctor", code=1)

    assert "queues: identity: EnvironmentCredential: " in result.stdout
    assert "queues: identity: AzureCliCredential: " in result.stdout
    assert "fail  queues: namespace: " in result.stdout
