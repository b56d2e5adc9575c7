"""Brings back samples that a node has lost while it trains, through the coordinator: few, and whatever ranks are doing.

reader that lacks a sample  ── lacks ──>  coordinator  ── give ──>  who has it
                            <── given ──               <── gives ──
"""

import base64
import threading
import zlib

from nfold.errors import RunError
from nfold.program import describe
from nfold.runtime.control.channel import Message
from nfold.runtime.rank.process import Process
from nfold.runtime.samples.record import Record


def take_part(process: Process) -> None:
    """Let a process ask for samples that it has lost, and give others those that they have."""
    store = process.resident.store
    store.on_missing(lambda number: process.channel.send({"is": "lacks", "number": number}))
    process.orders.on_beside("given", lambda order, data: _take(process, order, data))
    process.orders.on_beside("give", lambda order, _: _begin_to_give(process, order))


def _take(process: Process, order: Message, data: bytes) -> None:
    number, store = order["number"], process.resident.store
    if order["why"]:
        store.refuse(number, RunError(order["why"]))
        return
    try:
        if zlib.crc32(data) != order["crc"]:
            raise RunError(f"sample {number} came with another checksum than it had: it was changed on its way")
        store.add(number, Record(data, order["name"]))
    except RunError as error:
        store.refuse(number, error)


def _begin_to_give(process: Process, order: Message) -> None:
    threading.Thread(target=_give, args=(process, order), name="nfold-give", daemon=True).start()


def _give(process: Process, order: Message) -> None:
    told: Message = {"is": "gives", "number": order["number"], "to": order["to"]}
    try:
        (record,) = process.resident.records([order["number"]])
    except Exception as error:
        why = f"sample {order['number']} is lost here, and cannot be read on {process.node}: {describe(error)}"
        process.channel.send({**told, "why": why, "name": "", "data": "", "crc": 0})
        return
    data = base64.b64encode(record.data).decode()
    process.channel.send({**told, "why": "", "name": record.name, "data": data, "crc": zlib.crc32(record.data)})
