#include "python/torch_operators/known_kernels.h"

#include <algorithm>
#include <exception>

#include <pthread.h>

#include "python/torch_operators/dispatcher.h"

namespace sparsekiln::torch_operators {
namespace {

Indices::Place place_of(const Tensor& tensor) {
  std::int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  const bool is_vector = tensor.dim() == 1;
  return {tensor.data_ptr(), tensor.numel(), is_vector ? tensor.stride(0) : 0, dtype};
}

}  // namespace

Indices::Indices(const Tensor& crow, const Tensor& col)
    : crow_(crow), col_(col), places_{place_of(crow), place_of(col)} {}

Versions Indices::versions() const {
  return {call_dispatcher<std::int64_t>("aten::_version", crow_),
          call_dispatcher<std::int64_t>("aten::_version", col_)};
}

std::array<Tensor, 2> Indices::aliases() const {
  return {call_dispatcher<Tensor>("aten::detach", crow_), call_dispatcher<Tensor>("aten::detach", col_)};
}

KnownKernels& KnownKernels::instance() {
  static auto* const table = new KnownKernels;  // never destroyed: threads may launch until the process ends
  return *table;
}

KnownKernels::KnownKernels() {
  pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                 [] { instance().mutex_.unlock(); });
}

std::shared_ptr<const KnownKernel> KnownKernels::find(const Form& form, const Indices& indices,
                                                      std::int64_t n) const {
  std::shared_ptr<const KnownKernel> found;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(key_of(indices.places()));
    if (entry == entries_.end() || entry->second.places != indices.places()) return nullptr;
    for (std::size_t i = 0; i < indices.places().size(); ++i)  // what it keeps may have been moved
      if (entry->second.memory[i].data_ptr() != indices.places()[i].data) return nullptr;
    for (const auto& one : entry->second.kernels)
      if (one->least <= n && n <= one->most && one->form == form) found = one;
  }
  try {
    return found != nullptr && found->versions == indices.versions() ? found : nullptr;
  } catch (const std::exception&) {  // an inference tensor has none
    return nullptr;
  }
}

void KnownKernels::add(const Indices& indices, std::shared_ptr<const KnownKernel> kernel) {
  Entry entry{indices.places(), indices.aliases(), {}};
  std::vector<std::shared_ptr<const KnownKernel>> replaced;  // freed after the lock
  const std::lock_guard lock(mutex_);
  Entry& known = entries_.try_emplace(key_of(entry.places), entry).first->second;
  if (known.places != entry.places) std::swap(known, entry);
  std::erase_if(known.kernels, [&](const auto& one) {
    const bool same = one->least == kernel->least && one->form == kernel->form;
    if (same) replaced.push_back(one);
    return same;
  });
  known.kernels.push_back(std::move(kernel));
}

void KnownKernels::forget(std::uint64_t weight) {
  std::vector<Entry> forgotten;  // freed after the lock
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    auto& kernels = entry->second.kernels;
    const auto rest = std::stable_partition(kernels.begin(), kernels.end(),
                                            [&](const auto& one) { return one->weight != weight; });
    if (rest == kernels.end()) {
      ++entry;
    } else if (rest == kernels.begin()) {
      forgotten.push_back(std::move(entry->second));
      entry = entries_.erase(entry);
    } else {
      forgotten.push_back({{}, entry->second.memory, {rest, kernels.end()}});
      kernels.erase(rest, kernels.end());
      ++entry;
    }
  }
}

std::int64_t KnownKernels::size() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, entry] : entries_) count += entry.kernels.size();
  return static_cast<std::int64_t>(count);
}

}  // namespace sparsekiln::torch_operators
