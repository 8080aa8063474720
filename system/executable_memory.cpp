#include "system/executable_memory.h"

#include <cerrno>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

namespace sparsekiln {

std::string why_no_executable_memory() {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int error = page == MAP_FAILED ? errno : 0;
  if (error == 0) {
    *static_cast<volatile char*>(page) = 0;  // policies tell memory apart that was written
    if (::mprotect(page, size, PROT_READ | PROT_EXEC) != 0) error = errno;
    ::munmap(page, size);
  }
  return error == 0 ? std::string() : std::generic_category().message(error);
}

}  // namespace sparsekiln
