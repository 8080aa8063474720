#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sparsekiln/c.h>
#include <torch/csrc/stable/tensor.h>

namespace sparsekiln::torch_operators {

using torch::stable::Tensor;

enum class Operation { forward, grad_input, grad_weight };

/// What selects a kernel, apart from the index tensors and the rows of the batch.
struct Form {
  Operation operation;
  std::int64_t in_features, out_features;
  std::array<std::int64_t, 3> weight;  ///< the shape of the values, with room for other blocks
  std::int32_t dtype;                  ///< of activations, as PyTorch numbers them
  bool bias;
  std::string activation;
  bool operator==(const Form&) const = default;
};

/// How often PyTorch has counted a write to the two index tensors.
using Versions = std::array<std::int64_t, 2>;

/// The index tensors of a call.
class Indices {
 public:
  Indices(const Tensor& crow, const Tensor& col);

  [[nodiscard]] Versions versions() const;
  /// Tensors of the same memory, which keep it.
  [[nodiscard]] std::array<Tensor, 2> aliases() const;

  struct Place {
    const void* data;
    std::int64_t size, stride;
    std::int32_t dtype;
    bool operator==(const Place&) const = default;
  };
  [[nodiscard]] const std::array<Place, 2>& places() const { return places_; }

 private:
  const Tensor& crow_;
  const Tensor& col_;
  std::array<Place, 2> places_;
};

/// A kernel, and the calls that it is for.
struct KnownKernel {
  Form form;
  std::uint64_t weight;         ///< the number of the Weight (kernels.py) that it belongs to
  std::int64_t least, most;     ///< rows of the batch
  std::int64_t blocks;          ///< of the layout, where the values have room for more
  std::int64_t asks_after = 0;  ///< launches after which Python is asked again; 0: never
  Versions versions;            ///< of the index tensors, which have its layout
  std::shared_ptr<const sk_kernel> kernel;
  mutable std::atomic<std::int64_t> launches = 0;
};

/// The kernels that Python has found for index tensors of layers, by the memory that these are in. The table
/// keeps that memory, so that no other tensor has its address for as long as PyTorch does not move it.
/// Thread-safe, and usable in processes that were forked.
class KnownKernels {
 public:
  static KnownKernels& instance();

  /// Null where Python must be asked.
  [[nodiscard]] std::shared_ptr<const KnownKernel> find(const Form& form, const Indices& indices,
                                                        std::int64_t n) const;
  void add(const Indices& indices, std::shared_ptr<const KnownKernel> kernel);
  /// All kernels of a Weight.
  void forget(std::uint64_t weight);
  [[nodiscard]] std::int64_t size() const;

 private:
  KnownKernels();
  struct Entry {
    std::array<Indices::Place, 2> places;
    std::array<Tensor, 2> memory;
    std::vector<std::shared_ptr<const KnownKernel>> kernels;
  };
  using Key = std::pair<const void*, const void*>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.first) * 31 + std::hash<const void*>()(key.second);
    }
  };
  static Key key_of(const std::array<Indices::Place, 2>& places) { return {places[0].data, places[1].data}; }

  mutable std::mutex mutex_;
  std::unordered_map<Key, Entry, Hash> entries_;
};

}  // namespace sparsekiln::torch_operators
