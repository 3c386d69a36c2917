"""How two processes talk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.runtime.channel import Channel, ChannelClosedError, SharedMemory


@pytest.fixture
def ends():
    one, other = Channel.pair()
    yield one, other
    one.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    one, other = ends

    one.send({"do": "launch", "repeat": 3})

    assert other.receive(1) == ({"do": "launch", "repeat": 3}, [])


def test_messages_arrive_one_by_one_in_order(ends: tuple[Channel, Channel]) -> None:
    one, other = ends

    for number in range(3):
        one.send({"number": number})

    assert [other.receive(1)[0]["number"] for _ in range(3)] == [0, 1, 2]


def test_both_ends_see_the_same_memory(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    mine = SharedMemory(4000)
    mine.view(np.float32)[:] = np.arange(1000)

    one.send({}, [mine])
    _, [descriptor] = other.receive(1)
    theirs = SharedMemory(4000, descriptor)
    seen = theirs.view(np.float32).copy()
    theirs.view(np.float32)[7] = -1

    assert seen.tolist() == list(range(1000))
    assert mine.view(np.float32)[7] == -1
    mine.close()
    theirs.close()


def test_several_pieces_of_memory_keep_their_order(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    sent = [SharedMemory(size) for size in (1, 2, 3)]
    for number, piece in enumerate(sent):
        piece.view(np.uint8)[0] = number

    one.send({}, sent)
    received = [SharedMemory(1, descriptor) for descriptor in other.receive(1)[1]]

    assert [int(piece.view(np.uint8)[0]) for piece in received] == [0, 1, 2]
    for piece in (*sent, *received):
        piece.close()


def test_memory_outlives_its_descriptor_while_an_array_uses_it() -> None:
    memory = SharedMemory(8)
    array = memory.view(np.int64)
    array[0] = 5

    memory.close()
    del memory

    assert array[0] == 5


def test_shared_memory_has_no_name_in_the_file_system() -> None:
    memory = SharedMemory(16)

    link = Path(f"/proc/self/fd/{memory.descriptor}").readlink()

    assert str(link) == "/memfd:spmv_fpga (deleted)"
    memory.close()


def test_a_closed_end_is_told_to_who_waits(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.close()

    with pytest.raises(ChannelClosedError):
        other.receive(1)


def test_a_closed_end_is_told_to_who_sends(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.close()

    with pytest.raises(ChannelClosedError):
        other.send({"do": "open"})


def test_what_was_sent_before_the_end_was_closed_arrives(
    ends: tuple[Channel, Channel],
) -> None:
    one, other = ends
    one.send({"last": 1})
    one.close()

    assert other.receive(1)[0] == {"last": 1}


def test_waiting_ends_when_the_time_is_over(ends: tuple[Channel, Channel]) -> None:
    _, other = ends

    with pytest.raises(TimeoutError):
        other.receive(0.01)


def test_a_message_after_a_timeout_arrives_all_the_same(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    with pytest.raises(TimeoutError):
        other.receive(0.01)

    one.send({"late": True})

    assert other.receive()[0] == {"late": True}


def test_a_message_of_60_kilobytes_arrives_whole(ends: tuple[Channel, Channel]) -> None:
    one, other = ends

    one.send({"text": "x" * 60_000})

    assert len(other.receive(1)[0]["text"]) == 60_000


def test_a_message_that_is_too_long_is_refused_before_it_is_cut(
    ends: tuple[Channel, Channel],
) -> None:
    one, _ = ends

    with pytest.raises(ValueError, match="a message has 70012 bytes, more than 65536"):
        one.send({"text": "x" * 70_000})


def test_the_end_of_a_child_is_not_handed_on_to_its_own_children() -> None:
    one, other = Channel.pair()
    descriptor = os.dup(other.fileno())
    os.set_inheritable(descriptor, True)

    theirs = Channel.from_descriptor(descriptor)

    assert not os.get_inheritable(theirs.fileno())
    for end in (one, other, theirs):
        end.close()


def test_a_child_process_answers_over_the_descriptor_that_it_is_given() -> None:
    code = """
import sys
from spmv_fpga.runtime.channel import Channel, SharedMemory
channel = Channel.from_descriptor(int(sys.argv[1]))
request, [descriptor] = channel.receive()
memory = SharedMemory(8, descriptor)
memory.view("int64")[0] *= request["times"]
channel.send({"done": True})
"""
    one, other = Channel.pair()
    memory = SharedMemory(8)
    memory.view(np.int64)[0] = 6
    with subprocess.Popen(
        [sys.executable, "-c", code, str(other.fileno())],
        pass_fds=[other.fileno()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        other.close()
        one.send({"times": 7}, [memory])
        answer, _ = one.receive(30)

    assert (answer, int(memory.view(np.int64)[0])) == ({"done": True}, 42)
    assert process.returncode == 0
    with pytest.raises(ChannelClosedError):
        one.receive(1)
    one.close()
    memory.close()


def test_ends_are_local_sockets_that_keep_messages_apart() -> None:
    one, other = Channel.pair()
    with socket.socket(fileno=os.dup(one.fileno())) as end:
        assert (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.close()
    other.close()
