#include "compiler/cpu/normalise_pass.h"

#include <cstddef>
#include <functional>
#include <vector>

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"
#include "compiler/cpu/cell_ir.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int64_t kUnrolled = 4;  ///< vectors of a sweep at once: chains that hide an addition's latency
constexpr std::size_t kGates = 4;

/// Writes the pass. A *sweep* goes over the features of a group, which adds up some sums; vectors are of
/// neighbouring features, in the type of the sums.
class NormalisePass {
 public:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  NormalisePass(VectorIr& v, const Spmm& problem)
      : v_(v),
        ir_(v.ir),
        ends_(*problem.normalisation),
        forward_(problem.operation == Operation::forward),
        groups_(problem.groups_of_sums()),
        out_(problem.result_dtype),
        sum_(problem.sum_type()),
        lanes_(v.level.lanes * 4 / static_cast<std::int32_t>(size_of(sum_))) {}

  void emit(std::string_view name, std::int32_t tile_n, LayoutIr& layout) {
    v_.begin_pass(name);
    locate();
    Value* n = v_.argument(ir_.getInt64Ty(), offsetof(Call, n), "n");
    Value* workers = layout.number(LayoutNumber::workers);
    Value* tiles = v_.quotient(v_.plus(n, v_.constant(tile_n - 1)), tile_n);
    const Share jobs{v_.plus(ir_.CreateMul(v_.batch_tile, workers), v_.worker),
                     ir_.CreateMul(tiles, workers)};
    if (forward_)
      for_share("row", jobs, n, [&](Value* row) { forward(row); });
    else
      for_share("part", jobs, parts_, [&](Value* part) {
        for_share("row", {part, parts_}, n, [&](Value* row) { backward(row, part); });
      });
    v_.end_pass();
  }

 private:
  /// A matrix of the launch.
  struct Matrix {
    DType type = DType::f32;
    Value* data = nullptr;
    Value* stride = nullptr;
  };
  /// Where a row of a matrix, or a group of its features, begins.
  struct Place {
    DType type = DType::f32;
    Value* address = nullptr;
  };
  /// Numbers first, first + step, …
  struct Share {
    Value* first;
    Value* step;
  };
  /// The features that a step of a sweep is of: `lanes` from `first` on.
  struct Features {
    std::int32_t lanes;
    Value* first;
  };
  using Body = std::function<Values(const Features& at, const Values& sums)>;
  /// A group of a batch row: its mean and 1/σ, one of each.
  struct Moments {
    Value* mean;
    Value* inverse;
  };

  // ---- the launch's operands ----

  static constexpr std::size_t of(std::size_t member) { return offsetof(Call, normalisation) + member; }
  [[nodiscard]] Matrix matrix(DType type, std::size_t offset, const char* name) {
    return {type, v_.argument(ir_.getPtrTy(), offset + offsetof(LaunchMatrix, data), name),
            v_.argument(ir_.getInt64Ty(), offset + offsetof(LaunchMatrix, stride), "stride")};
  }
  [[nodiscard]] Place vector(std::size_t offset, const char* name) {
    return {out_, v_.argument(ir_.getPtrTy(), of(offset), name)};
  }
  void locate() {
    using N = LaunchNormalisation;
    using C = LaunchCell;
    features_ = v_.argument(ir_.getInt64Ty(), of(offsetof(N, features)), "features");
    count_ = ir_.CreateSIToFP(features_, scalar());
    y_ = matrix(out_, of(offsetof(N, y)), "y");
    z_ = matrix(out_, of(offsetof(N, sums)), "sums");
    statistics_ = matrix(sum_, of(offsetof(N, statistics)), "statistics");
    gain_ = vector(offsetof(N, gain), "gain");
    bias_ = vector(offsetof(N, bias), "bias");
    if (ends_.multiply) multiplier_ = matrix(out_, of(offsetof(N, multiplier)), "multiplier");
    if (ends_.add) addend_ = matrix(out_, of(offsetof(N, addend)), "addend");
    const auto cell = [](std::size_t member) { return offsetof(Call, cell) + member; };
    if (ends_.lstm) {
      c_before_ = matrix(sum_, cell(offsetof(C, c_before)), "c_before");
      c_ = matrix(sum_, cell(offsetof(C, c)), "c");
    }
    if (forward_) {
      const bool wide = sum_ == DType::f64;
      epsilon_ = v_.argument(scalar(), of(wide ? offsetof(N, epsilon64) : offsetof(N, epsilon)), "epsilon");
      return;
    }
    dh_ = matrix(sum_, of(offsetof(N, dh)), "dh");
    parts_ = v_.argument(ir_.getInt64Ty(), of(offsetof(N, parts)), "parts");
    dnorm_ = matrix(sum_, of(offsetof(N, dnorm)), "dnorm");
    if (ends_.lstm) {
      dc_ = matrix(sum_, cell(offsetof(C, dc)), "dc");
      dc_before_ = matrix(sum_, cell(offsetof(C, dc_before)), "dc_before");
      return;
    }
    if (ends_.multiply) dmultiplier_ = matrix(out_, of(offsetof(N, dmultiplier)), "dmultiplier");
    if (ends_.add) daddend_ = matrix(out_, of(offsetof(N, daddend)), "daddend");
  }

  [[nodiscard]] llvm::Type* scalar() { return sum_ == DType::f64 ? ir_.getDoubleTy() : ir_.getFloatTy(); }
  [[nodiscard]] static std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }
  [[nodiscard]] Place moved(const Place& place, Value* elements) {
    return {place.type, v_.at(place.address, v_.times(elements, bytes(place.type)))};
  }
  [[nodiscard]] Place place(const Matrix& matrix, Value* row) {
    return moved({matrix.type, matrix.data}, ir_.CreateMul(row, matrix.stride));
  }
  [[nodiscard]] Place of_group(const Place& row, std::size_t group) {
    return moved(row, v_.times(features_, static_cast<std::int64_t>(group)));
  }
  [[nodiscard]] Value* load(const Place& place, const Features& at) {
    const Place first = moved(place, at.first);
    return v_.load_floats(first.type, first.address, at.lanes, static_cast<unsigned>(bytes(first.type)));
  }
  void store(Value* value, const Place& place, const Features& at) {
    const Place first = moved(place, at.first);
    v_.store(v_.rounded_to(first.type, value), first.address, static_cast<unsigned>(bytes(first.type)));
  }
  void add_to(const Place& place, const Features& at, Value* value) {
    store(ir_.CreateFAdd(load(place, at), value), place, at);
  }
  [[nodiscard]] Value* all(Value* one, const Features& at) { return v_.splat(one, at.lanes); }

  // ---- loops ----

  /// body(i) of each number of a share below `end`, which is positive.
  void for_share(std::string_view name, const Share& share, Value* end,
                 const std::function<void(Value*)>& body) {
    Value* left = ir_.CreateSub(end, share.first);
    Value* count = ir_.CreateSDiv(v_.plus(left, ir_.CreateSub(share.step, v_.constant(1))), share.step);
    v_.loop(name, v_.constant(0), count,
            [&](Value* i) { body(v_.plus(share.first, ir_.CreateMul(i, share.step))); });
  }

  [[nodiscard]] Values zeros(std::size_t count, std::int32_t lanes) {
    return Values(count, llvm::Constant::getNullValue(
                             llvm::FixedVectorType::get(scalar(), static_cast<unsigned>(lanes))));
  }
  [[nodiscard]] Value* sum_of_lanes(Value* vector, std::int32_t lanes) {
    for (std::int32_t half = lanes / 2; half > 0; half /= 2) {
      std::vector<int> low;
      std::vector<int> high;
      for (int lane = 0; lane < half; ++lane) {
        low.push_back(lane);
        high.push_back(lane + half);
      }
      vector = ir_.CreateFAdd(ir_.CreateShuffleVector(vector, low), ir_.CreateShuffleVector(vector, high));
    }
    return vector;
  }
  /// Calls `body` for all features of a group, with the sums so far, of which it returns the next ones; gives
  /// `count` numbers. `vectors` of them are independent of one another.
  Values sweep(std::size_t count, const Body& body, std::int64_t vectors = kUnrolled) {
    const std::int64_t together = vectors * lanes_;
    Value* many = v_.quotient(features_, together);
    const auto chains = static_cast<std::size_t>(vectors);
    Values sums = v_.loop(
        "vectors", v_.constant(0), many, zeros(count * chains, lanes_), [&](Value* i, const Values& before) {
          Values next;
          for (std::size_t chain = 0; chain < chains; ++chain) {
            const auto first = before.begin() + static_cast<std::ptrdiff_t>(chain * count);
            Value* at =
                v_.plus(v_.times(i, together), v_.constant(static_cast<std::int64_t>(chain) * lanes_));
            const Values one = body({lanes_, at}, Values(first, first + static_cast<std::ptrdiff_t>(count)));
            next.insert(next.end(), one.begin(), one.end());
          }
          return next;
        });
    for (std::size_t half = chains / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half * count; ++i)
        sums[i] = ir_.CreateFAdd(sums[i], sums[i + half * count]);
    sums.resize(count);
    Value* whole = v_.quotient(features_, lanes_);
    sums = v_.loop("vector", v_.times(many, vectors), whole, sums, [&](Value* i, const Values& before) {
      return body({lanes_, v_.times(i, lanes_)}, before);
    });
    for (Value*& sum : sums) sum = sum_of_lanes(sum, lanes_);
    sums = v_.loop("feature", v_.times(whole, lanes_), features_, sums,
                   [&](Value* i, const Values& before) { return body({1, i}, before); });
    for (Value*& sum : sums) sum = ir_.CreateExtractElement(sum, std::uint64_t{0});
    return sums;
  }
  void sweep(const std::function<void(const Features& at)>& body, std::int64_t vectors = kUnrolled) {
    (void)sweep(
        0,
        [&](const Features& at, const Values&) {
          body(at);
          return Values{};
        },
        vectors);
  }

  // ---- forward ----

  [[nodiscard]] Value* mean_of(Value* sum) { return ir_.CreateFDiv(sum, count_); }
  [[nodiscard]] Value* less(Value* value, Value* mean, const Features& at) {
    return ir_.CreateFSub(value, all(mean, at));
  }
  Moments moments_of(const Place& z) {
    Value* mean = mean_of(sweep(1, [&](const Features& at, const Values& sum) {
      return Values{ir_.CreateFAdd(sum[0], load(z, at))};
    })[0]);
    Value* squares = sweep(1, [&](const Features& at, const Values& sum) {
      Value* difference = less(load(z, at), mean, at);
      return Values{v_.multiply_add(difference, difference, sum[0])};
    })[0];
    Value* deviation =
        ir_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, ir_.CreateFAdd(mean_of(squares), epsilon_));
    return {mean, ir_.CreateFDiv(llvm::ConstantFP::get(scalar(), 1), deviation)};
  }
  /// u, normalised z.
  [[nodiscard]] Value* normalised(const Place& z, const Moments& moments, const Features& at) {
    return ir_.CreateFMul(less(load(z, at), moments.mean, at), all(moments.inverse, at));
  }
  /// u·gain + bias, of a group.
  [[nodiscard]] Value* affine(Value* u, std::size_t group, const Features& at) {
    return v_.multiply_add(u, load(of_group(gain_, group), at), load(of_group(bias_, group), at));
  }

  void forward(Value* row) {
    const Place z = place(z_, row);
    const Place statistics = place(statistics_, row);
    std::vector<Moments> moments;
    for (std::size_t group = 0; group < groups(); ++group) {
      moments.push_back(moments_of(of_group(z, group)));
      const auto at = static_cast<std::int64_t>(2 * group);
      store(v_.splat(moments.back().mean, 1), statistics, {1, v_.constant(at)});
      store(v_.splat(moments.back().inverse, 1), statistics, {1, v_.constant(at + 1)});
    }
    if (ends_.lstm) return forward_cell(row, z, moments);
    const Place y = place(y_, row);
    const Place multiplier = ends_.multiply ? place(multiplier_, row) : Place{};
    const Place addend = ends_.add ? place(addend_, row) : Place{};
    sweep([&](const Features& at) {
      Value* t = argument_of(affine(normalised(z, moments[0], at), 0, at), multiplier, addend, at);
      store(activate(v_, ends_.activation, t), y, at);
    });
  }
  /// v·multiplier + addend.
  [[nodiscard]] Value* argument_of(Value* v, const Place& multiplier, const Place& addend,
                                   const Features& at) {
    if (ends_.multiply && ends_.add) return v_.multiply_add(v, load(multiplier, at), load(addend, at));
    if (ends_.multiply) return ir_.CreateFMul(v, load(multiplier, at));
    return ends_.add ? ir_.CreateFAdd(v, load(addend, at)) : v;
  }

  [[nodiscard]] CellGates gates_of(const Place& z, const std::vector<Moments>& moments, const Features& at) {
    CellGates gates{};
    for (std::size_t gate = 0; gate < kGates; ++gate)
      gates[gate] = activate(v_, gate == kCandidate ? Activation::tanh : Activation::sigmoid,
                             affine(normalised(of_group(z, gate), moments[gate], at), gate, at));
    return gates;
  }
  void forward_cell(Value* row, const Place& z, const std::vector<Moments>& moments) {
    const Place y = place(y_, row);
    const Place c_before = place(c_before_, row);
    const Place c = place(c_, row);
    const Place multiplier = ends_.multiply ? place(multiplier_, row) : Place{};
    sweep(
        [&](const Features& at) {
          CellGates gates = gates_of(z, moments, at);
          if (ends_.multiply) gates[kCandidate] = ir_.CreateFMul(gates[kCandidate], load(multiplier, at));
          const CellState state = state_of_cell(v_, gates, load(c_before, at));
          store(state.c, c, at);
          store(state.h, y, at);
        },
        2);
  }

  // ---- gradient ----

  [[nodiscard]] std::vector<Moments> stored_moments(Value* row) {
    const Place statistics = place(statistics_, row);
    std::vector<Moments> moments;
    const auto number = [&](std::size_t i) {
      return ir_.CreateExtractElement(load(statistics, {1, v_.constant(static_cast<std::int64_t>(i))}),
                                      std::uint64_t{0});
    };
    for (std::size_t group = 0; group < groups(); ++group)
      moments.push_back({number(2 * group), number(2 * group + 1)});
    return moments;
  }
  /// Adds what the gradients of gain and bias are of a group of a batch row, whose gradient of v is `dv`.
  void add_to_dnorm(const Place& dnorm, std::size_t group, Value* dv, Value* u, const Features& at) {
    add_to(of_group(dnorm, group), at, ir_.CreateFMul(dv, u));
    add_to(of_group(dnorm, groups() + group), at, dv);
  }
  /// dx from e, and from the sums of e and of e·u.
  void finish(const Place& z, const Place& e, const Place& dx, const Moments& moments, Value* e_sum,
              Value* eu_sum) {
    Value* e_mean = mean_of(e_sum);
    Value* eu_mean = mean_of(eu_sum);
    sweep([&](const Features& at) {
      Value* u = normalised(z, moments, at);
      Value* rest = v_.multiply_add(ir_.CreateFNeg(u), all(eu_mean, at), less(load(e, at), e_mean, at));
      store(ir_.CreateFMul(rest, all(moments.inverse, at)), dx, at);
    });
  }

  void backward(Value* row, Value* part) {
    const std::vector<Moments> moments = stored_moments(row);
    const Place z = place(z_, row);
    const Place dx = place(y_, row);
    const Place dh = place(dh_, row);
    const Place dnorm = place(dnorm_, part);
    if (ends_.lstm) return backward_cell(row, z, dh, dx, dnorm, moments);
    const Place multiplier = ends_.multiply ? place(multiplier_, row) : Place{};
    const Place addend = ends_.add ? place(addend_, row) : Place{};
    const Values sums = sweep(2, [&](const Features& at, const Values& before) {
      Value* u = normalised(z, moments[0], at);
      Value* v = affine(u, 0, at);
      Value* d = load(dh, at);
      if (ends_.activation != Activation::none)
        d = ir_.CreateFMul(d, derivative(v_, ends_.activation, argument_of(v, multiplier, addend, at)));
      if (ends_.add) store(d, place(daddend_, row), at);
      if (ends_.multiply) {
        store(ir_.CreateFMul(d, v), place(dmultiplier_, row), at);
        d = ir_.CreateFMul(d, load(multiplier, at));
      }
      add_to_dnorm(dnorm, 0, d, u, at);
      Value* e = ir_.CreateFMul(d, load(gain_, at));
      store(e, dh, at);
      return Values{ir_.CreateFAdd(before[0], e), v_.multiply_add(e, u, before[1])};
    });
    finish(z, dh, dx, moments[0], sums[0], sums[1]);
  }

  /// The gradient of h is where e of the first gate is going to be.
  void backward_cell(Value* row, const Place& z, const Place& dh, const Place& dx, const Place& dnorm,
                     const std::vector<Moments>& moments) {
    const Place c_before = place(c_before_, row);
    const Place c = place(c_, row);
    const Place dc = place(dc_, row);
    const Place dc_before = place(dc_before_, row);
    const Place multiplier = ends_.multiply ? place(multiplier_, row) : Place{};
    const Values sums = sweep(
        2 * kGates,
        [&](const Features& at, const Values& before) {
          const CellGates gates = gates_of(z, moments, at);
          const CellGradients gradients =
              gradients_of_cell(v_, gates, ends_.multiply ? load(multiplier, at) : nullptr, load(dh, at),
                                {.c_before = load(c_before, at), .c = load(c, at), .dc = load(dc, at)});
          store(gradients.dc_before, dc_before, at);
          Values next;
          for (std::size_t gate = 0; gate < kGates; ++gate) {
            Value* u = normalised(of_group(z, gate), moments[gate], at);
            add_to_dnorm(dnorm, gate, gradients.dz[gate], u, at);
            Value* e = ir_.CreateFMul(gradients.dz[gate], load(of_group(gain_, gate), at));
            store(e, of_group(dh, gate), at);
            next.push_back(ir_.CreateFAdd(before[2 * gate], e));
            next.push_back(v_.multiply_add(e, u, before[2 * gate + 1]));
          }
          return next;
        },
        1);
    for (std::size_t gate = 0; gate < kGates; ++gate)
      finish(of_group(z, gate), of_group(dh, gate), of_group(dx, gate), moments[gate], sums[2 * gate],
             sums[2 * gate + 1]);
  }

  [[nodiscard]] std::size_t groups() const { return static_cast<std::size_t>(groups_); }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  Epilogue ends_;
  bool forward_;
  std::int32_t groups_;
  DType out_;  ///< of all matrices but those of the type of the sums
  DType sum_;
  std::int32_t lanes_;
  Value* features_ = nullptr;  ///< of a group
  Value* count_ = nullptr;     ///< the same as a number of the type of the sums
  Value* epsilon_ = nullptr;
  Value* parts_ = nullptr;
  Matrix y_;
  Matrix dh_;
  Matrix z_;
  Matrix statistics_;
  Matrix multiplier_;
  Matrix addend_;
  Matrix dmultiplier_;
  Matrix daddend_;
  Matrix dnorm_;
  Matrix c_before_;
  Matrix c_;
  Matrix dc_;
  Matrix dc_before_;
  Place gain_;
  Place bias_;
};

}  // namespace

void emit_normalise_pass(VectorIr& ir, std::string_view name, const Spmm& problem, std::int32_t tile_n,
                         LayoutIr& layout) {
  NormalisePass(ir, problem).emit(name, tile_n, layout);
}

}  // namespace sparsekiln::cpu
