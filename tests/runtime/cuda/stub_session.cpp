#include "tests/runtime/cuda/stub_session.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

using namespace sparsekiln;

namespace {

/// The stub's path; with `fresh`, spelled as never before in this process.
std::string driver_path(bool fresh) {
  static std::string detour;
  if (fresh) detour += "./";
  const std::filesystem::path path = stub::path();
  return path.parent_path().string() + "/" + (fresh ? detour : "") + path.filename().string();
}

}  // namespace

ScopedVariable::ScopedVariable(const char* name, const char* value) : name_(name) {
  if (const char* before = std::getenv(name)) before_ = before;
  if (value == nullptr) {
    unsetenv(name);
  } else {
    setenv(name, value, 1);
  }
}

ScopedVariable::~ScopedVariable() {
  if (before_) {
    setenv(name_.c_str(), before_->c_str(), 1);
  } else {
    unsetenv(name_.c_str());
  }
}

StubSession::StubSession(bool fresh) : driver_("SPARSEKILN_CUDA_DRIVER", driver_path(fresh).c_str()) {
  stub::reset();
  stub::set_current(nullptr);
}

StubSession::~StubSession() {
  stub::reset();
  stub::set_current(nullptr);
}

Binary stub_binary() {
  Entry entry;
  entry.up_to = 100;
  entry.passes = {"forward"};
  entry.workers = 132;
  entry.tile_n = 32;
  entry.threads = 128;
  entry.arguments = {Argument::x, Argument::w,        Argument::y,       Argument::workspace,
                     Argument::n, Argument::x_stride, Argument::y_stride};
  Binary binary;
  binary.target = {Target::Kind::cuda, "sm_90", 132};
  binary.entries = {entry};
  binary.code = code_of("cubin sm_90\nkernel forward 8 8 8 8 4 8 8\n");
  binary.ptx = ".version 8.0\n.target sm_75\n// kernel forward 8 8 8 8 4 8 8\n";
  return binary;
}

std::shared_ptr<const Binary> shared(Binary binary) {
  return std::make_shared<const Binary>(std::move(binary));
}

std::vector<std::byte> code_of(const std::string& text) {
  std::vector<std::byte> code(text.size() + 1);  // with its end, which the stub looks for
  for (std::size_t i = 0; i < text.size(); ++i) code[i] = static_cast<std::byte>(text[i]);
  return code;
}
