"""Serves a namespace until standard input ends, and does what the lines there say (JSON, one order a line).

{"do": "namespace", "policies": {"Root": {"key": "..."}}}  -> {"namespace": 0, "amqp": 5672, "admin": 5300}
{"do": "create", "namespace": 0, "name": "cpu", "rules": {"lock_s": 2}}
{"do": "fault", "namespace": 0, "point": "send", "kind": "cut"}
{"do": "drop" | "stop" | "start" | "clear" | "look", "namespace": 0}
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from emulators.servicebus.access import ALL_RIGHTS, Policy
from emulators.servicebus.administration import Administration
from emulators.servicebus.broker import Rules
from emulators.servicebus.faults import Fault
from emulators.servicebus.namespace import Namespace

_POLICIES = {"RootManageSharedAccessKey": {"key": "SAS_KEY_VALUE"}}


class Orders:
    """Carries out what a test orders."""

    def __init__(self) -> None:
        self._namespaces: list[Namespace] = []

    async def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        doing = order.pop("do")
        if doing == "namespace":
            return await self._open(order.get("policies") or _POLICIES)
        namespace = self._namespaces[order.pop("namespace")]
        if doing == "create":
            namespace.create(order["name"], Rules(**order.get("rules", {})))
        elif doing == "delete":
            namespace.broker.delete(order["name"])
        elif doing == "fault":
            namespace.faults.waiting.append(Fault(**order))
        elif doing == "drop":
            namespace.drop_all()
        elif doing == "stop":
            await namespace.close()
        elif doing == "start":
            await namespace.open()
        elif doing == "clear":
            namespace.faults.waiting.clear()
        elif doing == "look":
            return _look(namespace)
        return {}

    async def _open(self, policies: dict[str, Any]) -> dict[str, Any]:
        made = {
            name: Policy(one["key"], frozenset(one.get("rights", ALL_RIGHTS)) | _implied(one))
            for name, one in policies.items()
        }
        namespace = Namespace(made)
        administration = Administration(namespace)
        await namespace.open()
        await administration.open()
        self._namespaces.append(namespace)
        return {"namespace": len(self._namespaces) - 1, "amqp": namespace.port, "admin": administration.port}


def _implied(policy: dict[str, Any]) -> frozenset[str]:
    """Manage includes the two others (Microsoft's documentation of shared access policies)."""
    return ALL_RIGHTS if "Manage" in policy.get("rights", ()) else frozenset()


def _look(namespace: Namespace) -> dict[str, Any]:
    queues = {queue.name: {"counts": queue.counts(), "rules": asdict(queue.rules)} for queue in namespace.broker}
    return {"queues": queues, "passed": dict(namespace.faults.passed), "connections": namespace.connections}


async def _main() -> None:
    orders = Orders()
    if sys.stdin.isatty():
        opened = await orders.carry_out({"do": "namespace"})
        policy, key = next((name, one["key"]) for name, one in _POLICIES.items())
        print(
            f"export DAGKIT_SERVICEBUS_ADMIN=http://127.0.0.1:{opened['admin']}\n"
            f'export DAGKIT_CONNECTION_STRING_EMULATOR="Endpoint=sb://127.0.0.1:{opened["amqp"]};'
            f'SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true"\n'
            f"export JOBQ_WORKFLOW_QUEUES=sb://emulator",
            flush=True,
        )
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            answer = await orders.carry_out(json.loads(line))
        except Exception as error:  # an order that cannot be carried out is the test's mistake: the server goes on
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
