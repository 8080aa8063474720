#include "kernel.h"
#include "emulator/ptx/parse.h"

#include <doctest/doctest.h>

namespace sparsekiln::emulator {
namespace {

std::string module_of(const std::string& body, const std::string& declarations, const std::string& limits) {
  return ".version 8.5\n.target sm_90a\n.address_size 64\n" + declarations +
         "\n.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n" + limits +
         "{\n"
         ".reg .pred %p<10>;\n.reg .b16 %h<10>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<20>;\n"
         "ld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nld.param.u64 %rd2, [p2];\n"
         "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\n" +
         body + "\nret;\n}\n";
}

}  // namespace

Kernel::Kernel(const std::string& body, const std::string& declarations, const std::string& limits) {
  const ptx::Module module = ptx::parse(module_of(body, declarations, limits));
  program_ = decode(module, module.functions.at(0), {});
}

std::uint64_t Kernel::unwritten(std::uint64_t bytes) {
  parameters.push_back(memory_->allocate(bytes)->address);
  return parameters.back();
}

std::uint64_t Kernel::zeros(std::uint64_t bytes) {
  const std::uint64_t address = unwritten(bytes);
  memory_->fill(address, 0, bytes);
  return address;
}

Counters Kernel::run(std::uint64_t seed) {
  LaunchRequest request;
  request.program = &program_;
  request.memory = memory_.get();
  request.grid[0] = blocks;
  request.block[0] = threads;
  request.cluster[0] = cluster;
  request.dynamic_shared_bytes = dynamic_shared;
  request.parameters.resize(24);
  if (!parameters.empty())
    std::memcpy(request.parameters.data(), parameters.data(),
                std::min<std::size_t>(24, parameters.size() * 8));
  request.seed = seed;
  request.number = number++;
  request.host_threads = host_threads;
  request.checks = checks;
  request.resident_blocks = resident_blocks;
  return emulator::run(request);
}

std::optional<Fault> Kernel::fault(std::uint64_t seed) {
  for (const std::uint64_t address : parameters) {
    const Allocation* const allocation = memory_->find(address);
    if (allocation != nullptr) memory_->fill(address, 0, allocation->bytes);
  }
  try {
    (void)run(seed);
  } catch (const Fault& fault) {
    return fault;
  }
  return std::nullopt;
}

bool Kernel::always(FaultKind kind, std::initializer_list<std::string_view> texts) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::optional<Fault> found = fault(seed);
    const std::string message = found ? found->what() : "no fault";
    INFO("seed ", seed, ": ", message);
    CHECK(found.has_value());
    if (!found) return false;
    CHECK(std::string(name(found->kind())) == name(kind));
    if (found->kind() != kind) return false;
    for (const std::string_view text : texts) {
      INFO("expected: ", std::string(text));
      CHECK(message.find(text) != std::string::npos);
      if (message.find(text) == std::string::npos) return false;
    }
  }
  return true;
}

bool Kernel::always_races(std::initializer_list<std::string_view> texts) {
  checks.unwritten = false;
  return always(FaultKind::race, texts);
}

bool Kernel::clean() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::optional<Fault> found = fault(seed);
    INFO("seed ", seed, ": ", std::string(found ? found->what() : ""));
    CHECK_FALSE(found.has_value());
    if (found) return false;
  }
  return true;
}

}  // namespace sparsekiln::emulator
