#include "compiler/layout_file/npy.h"

#include <cstdlib>

#include <sparsekiln/error.h>

#include "tests/fuzz/layout_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace layout_file = sparsekiln::layout_file;
  const auto parse = [](std::string_view bytes) {
    return layout_file::parse_npy(std::as_bytes(std::span(bytes)), "fuzz");
  };
  try {
    const auto array = layout_file::parse_npy_array(std::as_bytes(std::span(data, size)), "fuzz");
    if (array.elements.size() > size) std::abort();
  } catch (const sparsekiln::Error& error) {
    if (error.kind() != sparsekiln::ErrorKind::invalid_argument) std::abort();
  }
  sparsekiln::fuzz::check_round_trip({reinterpret_cast<const char*>(data), size}, parse,
                                     layout_file::write_npy);
  return 0;
}
