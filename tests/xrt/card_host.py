"""Host side of the emulated card's tests: adds two vectors, prints one JSON object.

Run as `card_host.py ARGUMENTS.json`, in the environment of an emulated run. The file
holds `xclbin`, `units` (a list; all are launched at once), `num_values`, `what` (the
kernel's last argument), and `repeat`.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def main() -> None:
    # The runtime prints on stdout; the result goes where only it can be.
    result_fd = os.dup(1)
    os.dup2(2, 1)
    import pyopencl as cl

    job = json.loads(Path(sys.argv[1]).read_text())
    platform = next(p for p in cl.get_platforms() if p.name == "Xilinx")
    devices = platform.get_devices()
    device = devices[job.get("card", 0)]
    context = cl.Context([device])
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(context, properties=profiling | out_of_order)
    program = cl.Program(context, [device], [Path(job["xclbin"]).read_bytes()]).build()

    n = job["num_values"]
    a = np.arange(n, dtype=np.float32)
    b = np.full(n, 0.5, dtype=np.float32)
    c = np.zeros(n, dtype=np.float32)
    launches = []
    flags = cl.mem_flags
    for unit in job["units"]:
        kernel = cl.Kernel(program, f"vadd:{{{unit}}}")
        buffers = [cl.Buffer(context, flags.READ_WRITE, a.nbytes) for _ in range(3)]
        kernel.set_args(*buffers, np.uint32(n), np.uint32(job["what"]))
        launches.append((kernel, buffers))
    events = []
    start = time.perf_counter()
    for _kernel, buffers in launches:
        cl.enqueue_copy(queue, buffers[0], a, is_blocking=True)
        cl.enqueue_copy(queue, buffers[1], b, is_blocking=True)
        events.append(cl.enqueue_migrate_mem_objects(queue, buffers[:2]))
    cl.wait_for_events(events)
    to_card_s = time.perf_counter() - start

    times = []
    for _ in range(job["repeat"]):
        events = [cl.enqueue_nd_range_kernel(queue, k, (1,), (1,)) for k, _ in launches]
        cl.wait_for_events(events)
        times.append([(e.profile.start, e.profile.end) for e in events])

    start = time.perf_counter()
    results = []
    for _, buffers in launches:
        cl.enqueue_copy(queue, c, buffers[2], is_blocking=True)
        results.append(bool(np.array_equal(c, a + b)))
    to_host_s = time.perf_counter() - start
    result = {
        "device": device.name,
        "num_devices": len(devices),
        "is_right": results,
        "times_ns": times,
        "to_card_s": to_card_s,
        "to_host_s": to_host_s,
    }
    os.write(result_fd, json.dumps(result).encode())


if __name__ == "__main__":
    main()
