/* What Debian 12's archives use of glibcs that are newer than 2.28: libgcc's unwinder, libstdc++ and LLVM, which were
 * compiled with glibc 2.36. Each is implemented with what 2.28 has. glibc_stubs.py links it as a part of libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#pragma GCC visibility push(hidden)

/* glibc 2.32. Whether the process has one thread, so that counts of references need no atomic operations: 0 says that it
 * may have more. */
char __libc_single_threaded = 0;

/* glibc 2.33. LLVM asks how much memory is allocated, when it is told to report that. mallinfo counts in int. */
struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo in = mallinfo();
#pragma GCC diagnostic pop
  return (struct mallinfo2){.arena = (unsigned)in.arena,       .ordblks = (unsigned)in.ordblks,
                            .smblks = (unsigned)in.smblks,     .hblks = (unsigned)in.hblks,
                            .hblkhd = (unsigned)in.hblkhd,     .usmblks = (unsigned)in.usmblks,
                            .fsmblks = (unsigned)in.fsmblks,   .uordblks = (unsigned)in.uordblks,
                            .fordblks = (unsigned)in.fordblks, .keepcost = (unsigned)in.keepcost};
}

/* glibc 2.36. std::random_device. Calls of at most 256 bytes are not interrupted once there is entropy. */
uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) abort(); /* as glibc does */
  return number;
}

struct search {
  uintptr_t address;
  struct dl_find_object* result;
};

static int examine(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  const struct search* const search = data;
  uintptr_t first = UINTPTR_MAX, end = 0;
  int inside = 0;
  void* unwinding = NULL;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const header = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) unwinding = (void*)begin;
    if (header->p_type != PT_LOAD) continue;
    if (begin < first) first = begin;
    if (begin + header->p_memsz > end) end = begin + header->p_memsz;
    inside |= search->address >= begin && search->address < begin + header->p_memsz;
  }
  if (!inside) return 0;
  *search->result = (struct dl_find_object){
      .dlfo_map_start = (void*)first, .dlfo_map_end = (void*)end, .dlfo_eh_frame = unwinding};
  return unwinding != NULL ? 1 : -1;
}

/* glibc 2.35. The unwinder of GCC 12 finds the object that an address is in. It reads dlfo_eh_frame, and where the object
 * begins. */
int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(examine, &search) == 1 ? 0 : -1;
}

#pragma GCC visibility pop
