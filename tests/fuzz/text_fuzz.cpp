#include "compiler/layout_file/text.h"

#include "tests/fuzz/layout_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace layout_file = sparsekiln::layout_file;
  const auto parse = [](std::string_view bytes) { return layout_file::parse_text(bytes, "fuzz"); };
  sparsekiln::fuzz::check_round_trip({reinterpret_cast<const char*>(data), size}, parse,
                                     layout_file::write_text);
  return 0;
}
