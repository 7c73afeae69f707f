"""The administration of a namespace: queues as Atom entries over HTTP (facts: servicebus 7). One answer per request."""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import datetime, timezone
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from emulators.servicebus.access import rights_of
from emulators.servicebus.broker import Queue, QueueExists, Rules
from emulators.servicebus.namespace import Namespace

__all__ = ["Administration"]

_ATOM = "http://www.w3.org/2005/Atom"
_SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_FOR_EVER = "P10675199DT2H48M5.4775807S"
_LONGEST_S = 1e9
_REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 409: "Conflict"}


class Administration:
    """Serves the queues of a namespace over plain HTTP."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace, self.port = namespace, 0

    async def open(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"(?im)^content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                status, text = await self._answer(head, body.decode())
                data = text.encode()
                lines = [
                    f"HTTP/1.1 {status} {_REASONS.get(status, 'Trouble')}",
                    f"Date: {formatdate(usegmt=True)}",
                    "Content-Type: application/atom+xml;type=entry;charset=utf-8",
                    f"Content-Length: {len(data)}",
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data)
                await writer.drain()
        writer.close()

    async def _answer(self, head: str, body: str) -> tuple[int, str]:
        method, target, _ = head.split("\r\n", 1)[0].split(" ", 2)
        parts = urlsplit(target)
        fault = self._namespace.faults.at("administration", parts.path)
        if fault and fault.kind == "delay":
            await asyncio.sleep(fault.delay_s)
        elif fault:
            return int(fault.condition), _error(int(fault.condition), "refused by the test")
        if refusal := self._refusal(head):
            return 401, _error(401, refusal)
        name = unquote(parts.path).strip("/")
        if name.lower() == "$resources/queues":
            return 200, self._feed(parse_qs(parts.query))
        return self._queue(method, name, body, is_update="if-match:" in head.lower())

    def _refusal(self, head: str) -> str | None:
        token = re.search(r"(?im)^authorization: *(.*?)\r?$", head)
        try:
            rights = rights_of(token[1] if token else "", self._namespace.policies)
        except PermissionError as error:
            return str(error)
        return None if "Manage" in rights else "Manage claim is required for this operation."

    def _queue(self, method: str, name: str, body: str, *, is_update: bool) -> tuple[int, str]:
        queue = self._namespace.broker.find(name)
        if method == "PUT" and not is_update:
            try:
                return 201, _entry(self._namespace.create(name, _rules(body)))
            except QueueExists:
                return 409, _error(409, f"Entity '{name}' already exists.")
        if queue is None:
            return 404, _error(404, f"Entity '{name}' was not found.")
        if method == "PUT":
            queue.rules.__dict__.update(_rules(body).__dict__)
        if method == "DELETE":
            self._namespace.broker.delete(name)
            return 200, ""
        return 200, _entry(queue)

    def _feed(self, query: dict[str, list[str]]) -> str:
        skip, top = int(query.get("$skip", ["0"])[0]), int(query.get("$top", ["100"])[0])
        queues = sorted(self._namespace.broker, key=lambda queue: queue.name)
        links = "<link rel='self' href='queues'/>"
        if len(queues) > skip + top:
            links += f"<link rel='next' href='queues?$skip={skip + top}&amp;$top={top}'/>"
        entries = "".join(map(_entry, queues[skip : skip + top]))
        return f"<feed xmlns='{_ATOM}'><title>Queues</title>{links}{entries}</feed>"


def _rules(body: str) -> Rules:
    described = ElementTree.fromstring(body).find(f".//{{{_SERVICE}}}QueueDescription")
    given = {item.tag.rpartition("}")[2]: item.text or "" for item in (described if described is not None else ())}
    rules = Rules()
    if "LockDuration" in given:
        rules.lock_s = _seconds(given["LockDuration"]) or rules.lock_s
    if "DuplicateDetectionHistoryTimeWindow" in given:
        rules.history_s = _seconds(given["DuplicateDetectionHistoryTimeWindow"]) or rules.history_s
    lives = _seconds(given.get("DefaultMessageTimeToLive", ""))
    rules.ttl_s = lives if lives and lives < _LONGEST_S else None
    rules.max_delivery_count = int(given.get("MaxDeliveryCount", rules.max_delivery_count))
    rules.detects_duplicates = given.get("RequiresDuplicateDetection") == "true"
    rules.dead_letters_expired = given.get("DeadLetteringOnMessageExpiration") == "true"
    return rules


def _seconds(text: str) -> float | None:
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _entry(queue: Queue) -> str:
    rules, counts, now = queue.rules, queue.counts(), datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    numbers = {"Active": "active", "DeadLetter": "dead", "Scheduled": "scheduled"}
    details = "".join(f"<d:{tag}MessageCount>{counts[key]}</d:{tag}MessageCount>" for tag, key in numbers.items())
    described = {
        "LockDuration": f"PT{rules.lock_s:g}S",
        "MaxSizeInMegabytes": 1024,
        "RequiresDuplicateDetection": str(rules.detects_duplicates).lower(),
        "RequiresSession": "false",
        "DefaultMessageTimeToLive": f"PT{rules.ttl_s:g}S" if rules.ttl_s else _FOR_EVER,
        "DeadLetteringOnMessageExpiration": str(rules.dead_letters_expired).lower(),
        "DuplicateDetectionHistoryTimeWindow": f"PT{rules.history_s:.0f}S",
        "MaxDeliveryCount": rules.max_delivery_count,
        "EnableBatchedOperations": "true",
        "SizeInBytes": 0,
        "MessageCount": counts["total"],
        "Status": "Active",
        "CreatedAt": now,
        "UpdatedAt": now,
        "AccessedAt": now,
    }
    fields = "".join(f"<{tag}>{value}</{tag}>" for tag, value in described.items())
    transfers = "<d:TransferMessageCount>0</d:TransferMessageCount>"
    transfers += "<d:TransferDeadLetterMessageCount>0</d:TransferDeadLetterMessageCount>"
    name = escape(queue.name)
    return (
        f"<entry xmlns='{_ATOM}'><id>{name}</id><title type='text'>{name}</title><published>{now}</published>"
        f"<updated>{now}</updated><content type='application/xml'><QueueDescription xmlns='{_SERVICE}'>{fields}"
        f"<CountDetails xmlns:d='{_COUNTS}'>{details}{transfers}</CountDetails>"
        f"</QueueDescription></content></entry>"
    )


def _error(status: int, text: str) -> str:
    return f"<Error><Code>{status}</Code><Detail>{escape(text)}</Detail></Error>"
