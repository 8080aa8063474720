#include "python/torch_operators/request.h"

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace sparsekiln::torch_operators {
namespace {

const python::Interface* connected = nullptr;
thread_local Request* current = nullptr;
thread_local bool in_overlapping_launches = false;
std::atomic<bool> reads_are_remembered = false;

}  // namespace

const python::Interface& interface() { return *connected; }

Request::Request(const Form& form_of, const Indices& indices_of, std::int64_t launches_of)
    : form(form_of), indices(indices_of), launches(launches_of), before_(std::exchange(current, this)) {}

Request::~Request() { current = before_; }

void Request::check() const {
  if (failed) throw Refusal(reason);
}

bool begins_by_python(std::optional<bool> overlap) {
  if (!overlap) return in_overlapping_launches;
  return *overlap || reads_are_remembered.load(std::memory_order_relaxed);
}

}  // namespace sparsekiln::torch_operators

// What Python calls: operator_library.py declares the same.

using namespace sparsekiln::torch_operators;

#define SPARSEKILN_EXPORT extern "C" __attribute__((visibility("default")))

SPARSEKILN_EXPORT void sparsekiln_torch_connect(const sparsekiln::python::Interface* interface) {
  connected = interface;
}

/// Launches of the kernel that C++ made since Python was asked the last time, in a Request.
SPARSEKILN_EXPORT std::int64_t sparsekiln_torch_launches() {
  return current == nullptr ? 0 : current->launches;
}

/// In a Request: the kernel that Python launched, for later calls like this one.
SPARSEKILN_EXPORT void sparsekiln_torch_add(std::uint64_t weight, std::uint64_t kernel, std::int64_t blocks,
                                            std::int64_t least, std::int64_t most, std::int64_t asks_after,
                                            std::int64_t crow_version, std::int64_t col_version) {
  if (current == nullptr) return;
  try {
    auto known = std::make_shared<KnownKernel>();
    known->form = current->form;
    known->weight = weight;
    known->least = least;
    known->most = most;
    known->blocks = blocks;
    known->asks_after = asks_after;
    known->versions = {crow_version, col_version};
    sk_kernel* copy = nullptr;
    if (interface().kernel_copy(reinterpret_cast<const sk_kernel*>(kernel), &copy) != SK_OK) return;
    known->kernel = std::shared_ptr<const sk_kernel>(
        copy, [](const sk_kernel* one) { interface().kernel_free(const_cast<sk_kernel*>(one)); });
    KnownKernels::instance().add(current->indices, std::move(known));
  } catch (const std::exception&) {  // later calls ask again
  }
}

/// In a Request: that Python refuses the call.
SPARSEKILN_EXPORT void sparsekiln_torch_fail(const char* reason) {
  if (current == nullptr) return;
  current->failed = true;
  current->reason = reason;
}

SPARSEKILN_EXPORT void sparsekiln_torch_forget(std::uint64_t weight) {
  KnownKernels::instance().forget(weight);
}

/// How many kernels are known.
SPARSEKILN_EXPORT std::int64_t sparsekiln_torch_known() { return KnownKernels::instance().size(); }

/// Whether this thread is within overlapping_launches, and whether any launch may find what it reads settled.
SPARSEKILN_EXPORT void sparsekiln_torch_set_overlapping(bool on) { in_overlapping_launches = on; }
SPARSEKILN_EXPORT void sparsekiln_torch_set_remembering(bool on) { reads_are_remembered = on; }
