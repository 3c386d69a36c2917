"""How the program and its worker process talk: JSON messages, and memory that both see.

Arrays never travel through the socket: they stand in anonymous shared memory, whose file
descriptors go with a message. Nothing has a name that could be left behind.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_MAX_MESSAGE_BYTES = 1 << 16
_MAX_DESCRIPTORS = 8


class ChannelClosedError(ConnectionError):
    """The other end is gone."""


class SharedMemory:
    """Anonymous memory that two processes share.

    Parameters
    ----------
    num_bytes : int
        Size; at least 1.
    descriptor : int, optional
        File descriptor that came with a message; without it new memory is made.
    """

    def __init__(self, num_bytes: int, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("spmv_fpga")
            os.ftruncate(descriptor, num_bytes)
        self.descriptor = descriptor
        self.num_bytes = num_bytes
        self._map = mmap.mmap(descriptor, num_bytes)

    def view(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the whole memory as a one-dimensional array."""
        return np.frombuffer(self._map, dtype)

    def close(self) -> None:
        """Give up the descriptor; the memory goes when no array uses it any more."""
        os.close(self.descriptor)


class Channel:
    """One end of a connection between two processes of this machine."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return two connected ends."""
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(a), cls(b)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        """Return the end that a parent process has handed over."""
        os.set_inheritable(descriptor, False)  # else a child would keep the connection open
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the descriptor of this end."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], memory: Sequence[SharedMemory] = ()) -> None:
        """Send a message, and memory with it.

        Raises
        ------
        ChannelClosedError
            If the other end is gone.
        ValueError
            If the message is longer than 64 KiB: what grows with the data goes as memory.
        """
        data = json.dumps(message).encode()
        if len(data) > _MAX_MESSAGE_BYTES:
            raise ValueError(
                f"a message has {len(data)} bytes, more than {_MAX_MESSAGE_BYTES}."
            )
        try:
            if memory:
                socket.send_fds(self._socket, [data], [m.descriptor for m in memory])
            else:
                self._socket.send(data)
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosedError from None

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for a message; returns it with the file descriptors that came along.

        Raises
        ------
        ChannelClosedError
            If the other end is gone.
        TimeoutError
            If nothing came in time.
        """
        self._socket.settimeout(timeout_s)
        space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_MAX_MESSAGE_BYTES, space)
        except ConnectionResetError:
            data, ancillary = b"", []
        if not data:
            raise ChannelClosedError
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content)
        return json.loads(data), list(descriptors)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
