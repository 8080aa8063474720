#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

/// Stores %r8 of each lane to p0.
constexpr const char* kStore =
    "\nmul.wide.u32 %rd9, %r0, 4;\nadd.s64 %rd9, %rd0, %rd9;\nst.global.u32 [%rd9], %r8;\n";

/// Parameters p1 and p2 are 0x0000000500000004 and 0x0000000700000006.
Kernel kernel_of(const std::string& body) {
  Kernel kernel(body);
  kernel.zeros(128);
  kernel.parameters.push_back(0x0000000500000004);
  kernel.parameters.push_back(0x0000000700000006);
  return kernel;
}

std::uint32_t result(const std::string& body, std::uint64_t lane = 0) {
  Kernel kernel = kernel_of(body + kStore);
  (void)kernel.run();
  return kernel.read<std::uint32_t>(kernel.parameters[0] + 4 * lane);
}

std::string fault_of(const std::string& body) {
  Kernel kernel = kernel_of(body);
  try {
    (void)kernel.run();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

bool holds(const std::string& text, const char* part) {
  INFO(text, " | ", part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("a parameter's address is that of the space of parameters") {
  CHECK(result("mov.b64 %rd3, p1;\nld.param.u32 %r8, [%rd3+4];") == 5);
  CHECK(result("mov.b64 %rd3, p1+8;\nld.param.u32 %r8, [%rd3];") == 6);
  CHECK(result("mov.u32 %r3, p2;\nld.param::entry.v2.u32 {%r7, %r8}, [%r3];") == 7);
}

TEST_CASE("lanes may read parameters at different addresses") {
  const char* const kIndexed =
      "and.b32 %r3, %r0, 3;\nmul.wide.u32 %rd4, %r3, 4;\nmov.b64 %rd3, p1;\nadd.s64 %rd3, %rd3, %rd4;\n"
      "ld.param.u32 %r8, [%rd3];";
  for (std::uint64_t lane = 0; lane < 8; ++lane) CHECK(result(kIndexed, lane) == 4 + lane % 4);
}

TEST_CASE("parameters have a window in generic addresses") {
  CHECK(result("mov.b64 %rd3, p1;\ncvta.param.u64 %rd4, %rd3;\nld.u32 %r8, [%rd4+12];") == 7);
  CHECK(result("mov.b64 %rd3, p1;\ncvta.param.u64 %rd4, %rd3;\ncvta.to.param.u64 %rd5, %rd4;\n"
               "ld.param.u32 %r8, [%rd5+8];") == 6);
  const std::string which =
      "mov.b64 %rd3, p1;\ncvta.param::entry.u64 %rd4, %rd3;\nisspacep.param %p1, %rd4;\n"
      "isspacep.global %p2, %rd4;\nisspacep.shared %p3, %rd4;\nisspacep.const %p4, %rd4;\n"
      "selp.u32 %r3, 1, 0, %p1;\nselp.u32 %r4, 2, 0, %p2;\nselp.u32 %r5, 4, 0, %p3;\nselp.u32 %r6, 8, 0, "
      "%p4;\n"
      "or.b32 %r3, %r3, %r4;\nor.b32 %r3, %r3, %r5;\nor.b32 %r8, %r3, %r6;";
  CHECK(result(which) == 3);
}

TEST_CASE("parameters are read-only, aligned and end") {
  const std::string generic = "mov.b64 %rd3, p1;\ncvta.param.u64 %rd4, %rd3;\n";
  CHECK(holds(fault_of(generic + "st.u32 [%rd4], %r0;"), "writes a parameter of the kernel"));
  CHECK(holds(fault_of(generic + "ld.u32 %r8, [%rd4+16];"),
              "reads 4 bytes at 0x18 of the parameters, which have 24"));
  CHECK(holds(fault_of(generic + "ld.u32 %r8, [%rd4+2];"), "no multiple of 4"));
  CHECK(holds(fault_of("mov.b64 %rd3, p1;\nld.param.u32 %r8, [%rd3+16];"), "of the parameters"));
  // Without cvta.param it is no generic address.
  CHECK(holds(fault_of("mov.b64 %rd3, p1;\nld.u32 %r8, [%rd3];"), "out of bounds"));
}
