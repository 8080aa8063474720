#include "bulk_kernel.h"

#include <doctest/doctest.h>

#include <cstring>

#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"
#include "kernel.h"

namespace sparsekiln::emulator {
namespace {

std::string module_of(const std::string& body) {
  return ".version 8.6\n.target sm_90a\n.address_size 64\n"
         ".shared .align 1024 .b8 s[8192];\n.shared .align 8 .b64 b[4];\n"
         ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .align 64 .b8 map[128])\n{\n"
         ".reg .pred %p<10>;\n.reg .b16 %h<10>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<20>;\n"
         "ld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nmov.b64 %rd10, map;\ncvta.param.u64 %rd2, "
         "%rd10;\n"
         "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r8, b;\nmov.u32 %r9, s;\n"
         "setp.eq.u32 %p8, %r0, 0;\n@%p8 mbarrier.init.shared::cta.b64 [%r8], 1;\n"
         "fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait."
         "aligned;\n" +
         body + "\nret;\n}\n";
}

/// `body` for each of `words`, dealt out to the threads: %r21 is its offset, %rd11 that as 64 bits.
std::string each_word(std::uint32_t words, std::uint32_t threads, const std::string& label,
                      const std::string& body) {
  return "mov.u32 %r20, %r0;\n" + label + ": setp.ge.u32 %p3, %r20, " + std::to_string(words) +
         ";\n@%p3 bra " + label +
         "_END;\nshl.b32 %r21, %r20, 2;\ncvt.u64.u32 %rd11, %r21;\nadd.u32 %r22, %r21, %r9;\n" + body +
         "add.u32 %r20, %r20, " + std::to_string(threads) + ";\nbra " + label + ";\n" + label + "_END:\n";
}

}  // namespace

BulkKernel::BulkKernel(const std::string& body) {
  const ptx::Module module = ptx::parse(module_of(body));
  program_ = decode(module, module.functions.at(0), {});
}

std::vector<std::uint32_t> BulkKernel::run(std::uint64_t seed) {
  GlobalMemory memory(std::uint64_t{1} << 30);
  std::uint64_t addresses[2] = {memory.allocate(from.size() * 4)->address,
                                memory.allocate(to.size() * 4)->address};
  memory.write(addresses[0], from.data(), from.size() * 4);
  memory.write(addresses[1], to.data(), to.size() * 4);
  map.address = addresses[map_is_to ? 1 : 0];
  const TensorMapBytes bytes = encode(map);

  LaunchRequest request;
  request.program = &program_;
  request.memory = &memory;
  request.grid[0] = blocks;
  request.block[0] = threads;
  request.cluster[0] = cluster;
  request.parameters.resize(program_.param_bytes);
  std::memcpy(request.parameters.data(), addresses, sizeof addresses);
  std::memcpy(request.parameters.data() + program_.param_bytes - bytes.size(), bytes.data(), bytes.size());
  request.seed = seed;
  request.host_threads = host_threads;
  request.checks = checks;
  counters = emulator::run(request);
  std::vector<std::uint32_t> after(to.size());
  memory.read(addresses[1], after.data(), after.size() * 4);
  return after;
}

std::optional<Fault> BulkKernel::fault(std::uint64_t seed) {
  try {
    (void)run(seed);
  } catch (const Fault& fault) {
    return fault;
  }
  return std::nullopt;
}

bool BulkKernel::always(FaultKind kind, std::initializer_list<std::string_view> texts) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::optional<Fault> found = fault(seed);
    const std::string message = found ? found->what() : "no fault";
    INFO("seed ", seed, ": ", message);
    bool right = found && found->kind() == kind;
    for (const std::string_view text : texts) {
      INFO("expected: ", std::string(text));
      right = right && message.find(text) != std::string::npos;
    }
    CHECK(right);
    if (!right) return false;
  }
  return true;
}

bool BulkKernel::gives(const std::vector<std::uint32_t>& expected) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed ", seed);
    std::vector<std::uint32_t> after;
    try {
      after = run(seed);
    } catch (const Fault& fault) {
      INFO(std::string(fault.what()));
      CHECK(false);
      return false;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (after[i] == expected[i]) continue;
      INFO("word ", i);
      CHECK(after[i] == expected[i]);
      return false;
    }
  }
  return true;
}

std::vector<std::uint32_t> BulkKernel::numbers(std::uint32_t many) {
  std::vector<std::uint32_t> result(many);
  for (std::uint32_t i = 0; i < many; ++i) result[i] = 1000 + i;
  return result;
}

std::string BulkKernel::copy_out(std::uint32_t words, std::uint32_t threads) {
  return each_word(
      words, threads, "L0",
      "ld.shared.u32 %r23, [%r22];\nadd.s64 %rd11, %rd11, %rd1;\nst.global.u32 [%rd11], %r23;\n");
}

std::string BulkKernel::copy_in(std::uint32_t words, std::uint32_t threads) {
  return each_word(
      words, threads, "L1",
      "add.s64 %rd11, %rd11, %rd0;\nld.global.u32 %r23, [%rd11];\nst.shared.u32 [%r22], %r23;\n");
}

std::string BulkKernel::expect(std::uint32_t bytes) {
  return "@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], " + std::to_string(bytes) + ";\n";
}

std::string BulkKernel::wait() {
  return "L2: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r8], 0;\n@!%p4 bra L2;\n";
}

TensorMap matrix_of(std::uint64_t rows, Swizzle swizzle) {
  TensorMap map;
  map.rank = 2;
  map.element = TensorElement::u32;
  map.swizzle = swizzle;
  map.sizes = {32, rows};
  map.strides = {128};
  map.box = {32, 8};
  map.steps = {1, 1};
  return map;
}

}  // namespace sparsekiln::emulator
