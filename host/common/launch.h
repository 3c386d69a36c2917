/* What the emulated card hands to a kernel library, and what it gets back.
 *
 * A kernel library exports, for a kernel named NAME,
 *
 *     extern "C" void __stub____xlnx_cl_NAME(char **argv);
 *
 * (the entry point of the vendor's own software emulation). argv[1 + i] points to
 * the value of argument i: to a pointer into the card's memory, or to the 4 or 8
 * bytes of a scalar. argv[0] points to a struct spmv_fpga_launch.
 */
#ifndef SPMV_FPGA_LAUNCH_H
#define SPMV_FPGA_LAUNCH_H

#define SPMV_FPGA_LAUNCH_VERSION 2u

#ifdef __cplusplus
extern "C" {
#endif

struct spmv_fpga_buffer {
  const char *name;         /* argument's name */
  const void *begin;        /* address that the argument holds; null for a scalar */
  unsigned long long bytes; /* from begin to the end of the allocated buffer; 0 for a scalar */
  unsigned bank;            /* memory bank that the argument is connected to */
  unsigned sharers;         /* interfaces of all units on that bank, this one included */
  unsigned outstanding;     /* bursts in flight */
};

/* How fast the card's memory is, in cycles of the kernel. */
struct spmv_fpga_memory {
  double bytes_per_cycle;  /* of one bank */
  double setup_cycles;     /* of a burst that does not follow the one before */
  unsigned latency_cycles; /* from the request of a burst to its first word */
  unsigned burst_words;    /* words of the longest burst */
};

struct spmv_fpga_launch {
  unsigned version; /* SPMV_FPGA_LAUNCH_VERSION */
  const char *unit; /* compute unit that is launched */
  unsigned num_arguments;
  const struct spmv_fpga_buffer *buffers; /* one for each argument */
  const struct spmv_fpga_memory *memory;  /* null: the launch is not timed */
  char *error; /* the kernel writes its message here; "" means that all went well */
  unsigned long long error_capacity; /* bytes, the closing zero included */
  char *report; /* JSON text that the kernel may leave: the counters of this launch */
  unsigned long long report_capacity;
};

#ifdef __cplusplus
}
#endif

#endif
