#include "tests/emulator/one_warp.h"

#include <cstring>

#include "emulator/machine/launch.h"
#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"

namespace sparsekiln::emulator {
namespace {

constexpr std::uint64_t kColumnBytes = 32 * sizeof(std::uint64_t);

std::string line(std::string_view what, std::string_view bits, std::string_view first,
                 std::string_view second) {
  std::string text("  ");
  text.append(what).append(bits).append(" ").append(first).append(", ").append(second).append(";\n");
  return text;
}

std::string numbered(std::string_view name, std::size_t number) {
  return std::string(name).append(std::to_string(number));
}

std::string place(std::string_view base, std::size_t column) {
  return std::string("[").append(base).append("+").append(std::to_string(column * kColumnBytes)).append("]");
}

std::string module_text(std::string_view body, const std::vector<Given>& inputs,
                        const std::vector<int>& results) {
  std::string text =
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {\n";
  text.append("  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b32 %lane;\n");
  text.append("  .reg .b64 %from, %to, %at;\n");
  const auto declare = [&](std::string_view name, std::size_t number, int bits) {
    text.append("  .reg .b")
        .append(std::to_string(bits))
        .append(" ")
        .append(numbered(name, number))
        .append(";\n");
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) declare("%in", i, inputs[i].bits);
  for (std::size_t i = 0; i < results.size(); ++i) declare("%out", i, results[i]);
  text.append("  ld.param.u64 %from, [in];\n  ld.param.u64 %to, [out];\n  mov.u32 %lane, %tid.x;\n");
  text.append("  mul.wide.u32 %at, %lane, 8;\n  add.s64 %from, %from, %at;\n  add.s64 %to, %to, %at;\n");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    text += line("ld.global.b", std::to_string(inputs[i].bits), numbered("%in", i), place("%from", i));
  text.append(body).append("\n");
  for (std::size_t i = 0; i < results.size(); ++i)
    text += line("st.global.b", std::to_string(results[i]), place("%to", i), numbered("%out", i));
  return text.append("  ret;\n}\n");
}

}  // namespace

WarpRun run_warp(std::string_view body, const std::vector<Given>& inputs, const std::vector<int>& results,
                 std::uint32_t threads) {
  const ptx::Module module = ptx::parse(module_text(body, inputs, results));
  const Program program = decode(module, module.functions.at(0), {});
  GlobalMemory memory(1 << 20);
  const std::uint64_t in = memory.allocate(kColumnBytes * (inputs.size() + 1))->address;
  const std::uint64_t out = memory.allocate(kColumnBytes * (results.size() + 1))->address;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    memory.write(in + i * kColumnBytes, inputs[i].values.data(), kColumnBytes);
  LaneValues untouched;
  untouched.fill(0xdead);
  for (std::size_t i = 0; i < results.size(); ++i)
    memory.write(out + i * kColumnBytes, untouched.data(), kColumnBytes);

  LaunchRequest request{.program = &program, .memory = &memory, .block = {threads, 1, 1}};
  request.parameters.resize(16);
  std::memcpy(request.parameters.data(), &in, 8);
  std::memcpy(request.parameters.data() + 8, &out, 8);
  request.host_threads = 1;
  WarpRun done;
  done.counters = run(request);
  done.results.resize(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    memory.read(out + i * kColumnBytes, done.results[i].data(), kColumnBytes);
    for (std::uint64_t& value : done.results[i])
      if (results[i] < 64 && value != 0xdead) value &= (std::uint64_t{1} << results[i]) - 1;
  }
  return done;
}

}  // namespace sparsekiln::emulator
