"""The driver's functions for graphs, and for objects of programs that live as long as graphs do."""

from __future__ import annotations

import struct
from collections import Counter

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import STRUCTURES, DriverResult, Refused
from kbuild.emulator.driver.core import Driver
from kbuild.emulator.driver.streams import Graph, UserObject
from kbuild.emulator.driver.table import Pointer, Unsigned, Word, call

_MOVE = 1
"""CU_GRAPH_USER_OBJECT_MOVE: the graph takes over references of the caller."""


@call(11040)
def cuGraphInstantiateWithFlags(driver: Driver, executable: Pointer, graph: Pointer, flags: Word) -> None:
    host.put(executable, "Q", driver.keep(driver.find(Graph, graph).ready()))


@call(11000)
def cuGraphInstantiate_v2(
    driver: Driver, executable: Pointer, graph: Pointer, node: Pointer, log: Pointer, size: Word
) -> None:
    cuGraphInstantiateWithFlags(driver, executable, graph, 0)


@call(12000, ptsz=12000)
def cuGraphInstantiateWithParams(
    driver: Driver, executable: Pointer, graph: Pointer, parameters: Pointer
) -> None:
    flags, stream, *_ = host.unpack(parameters, STRUCTURES["CUDA_GRAPH_INSTANTIATE_PARAMS"])
    cuGraphInstantiateWithFlags(driver, executable, graph, flags)
    host.write(parameters, struct.pack(STRUCTURES["CUDA_GRAPH_INSTANTIATE_PARAMS"], flags, stream, 0, 0))


@call(11010, ptsz=11010)
def cuGraphUpload(driver: Driver, executable: Pointer, stream: Pointer) -> None:
    driver.find(Graph, executable)
    driver.stream(stream)


@call(12000)
def cuGraphExecUpdate_v2(driver: Driver, executable: Pointer, graph: Pointer, info: Pointer) -> None:
    driver.find(Graph, executable).work = list(driver.find(Graph, graph).work)
    host.write(info, struct.pack(STRUCTURES["CUgraphExecUpdateResultInfo"], 0, 0, 0))


@call(10000)
def cuGraphGetNodes(driver: Driver, graph: Pointer, nodes: Pointer, count: Pointer) -> None:
    work = driver.find(Graph, graph).work
    if nodes:
        (room,) = host.unpack(count, "Q")
        host.write(
            nodes, b"".join((number + 1).to_bytes(8, "little") for number in range(min(room, len(work))))
        )
    host.put(count, "Q", len(work))


@call(10000, ptsz=10000)
def cuGraphLaunch(driver: Driver, executable: Pointer, stream: Pointer) -> None:
    graph = driver.find(Graph, executable)

    def work() -> None:
        for one in graph.work:
            one()

    driver.submit(driver.stream(stream), work)


@call(10000, aliases={"cuGraphExecDestroy": 10000})
def cuGraphDestroy(driver: Driver, graph: Pointer) -> None:
    driver.find(Graph, graph).end()
    driver.drop(graph)
    _forget_unused(driver)


def _forget_unused(driver: Driver) -> None:
    for handle, known in driver.handles(UserObject):
        if not known.references:
            driver.drop(handle)


@call(11030)
def cuUserObjectCreate(
    driver: Driver,
    object_: Pointer,
    data: Pointer,
    destroy: Pointer,
    references: Unsigned,
    flags: Unsigned,
) -> None:
    if not destroy or not references:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_VALUE, "no function to destroy it with, or no references"
        )
    host.put(object_, "Q", driver.keep(UserObject(lambda: host.run(destroy, data), references)))


@call(11030)
def cuUserObjectRetain(driver: Driver, object_: Pointer, count: Unsigned) -> None:
    driver.find(UserObject, object_).references += count


@call(11030)
def cuUserObjectRelease(driver: Driver, object_: Pointer, count: Unsigned) -> None:
    driver.find(UserObject, object_).release(count)
    _forget_unused(driver)


@call(11030)
def cuGraphRetainUserObject(
    driver: Driver, graph: Pointer, object_: Pointer, count: Unsigned, flags: Unsigned
) -> None:
    retained = driver.find(UserObject, object_)
    driver.find(Graph, graph).objects[retained] += count
    retained.references += 0 if flags & _MOVE else count


@call(11030)
def cuGraphReleaseUserObject(driver: Driver, graph: Pointer, object_: Pointer, count: Unsigned) -> None:
    released, holder = driver.find(UserObject, object_), driver.find(Graph, graph)
    if holder.objects[released] < count:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "the graph has not as many references")
    holder.objects -= Counter({released: count})
    released.release(count)
    _forget_unused(driver)
