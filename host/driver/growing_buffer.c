/* Linked into a copy of Debian's libxrt_swemu (-Wl,--wrap=malloc,--wrap=realloc).
 *
 * The library's message buffers grow by a realloc whose result it forgets
 * (CpuemShim::alloc_void), so a buffer that moves is written after it was freed.
 * Here buffers never move: each gets so much address space that no message
 * outgrows it. Pages that nobody touches cost no memory.
 */
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t kRoomBytes = (size_t)64 << 20;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_realloc(void *buffer, size_t bytes);

void *__wrap_malloc(size_t bytes) { return __real_malloc(bytes < kRoomBytes ? kRoomBytes : bytes); }

void *__wrap_realloc(void *buffer, size_t bytes) {
  static const char message[] =
      "spmv_fpga: a message to the emulated card is longer than 64 MiB; "
      "set SW_EMU_PACKET_SIZE to less.\n";

  if (buffer == NULL) return __wrap_malloc(bytes);
  if (bytes <= malloc_usable_size(buffer)) return buffer;
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) abort();
  abort();
}
