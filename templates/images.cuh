#pragma once

#include "extents.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Channels-first activations of a convolution: images [features][positions]. The product is one of rows,
// [positions][features], which are in the workspace: a kernel before it transposes what the caller gave, and
// one after it what it computed. Each is launched with the grid of the product.
//
// A warp transposes 32 rows of 32 words at a time, through shared memory: a row there has one word more, so
// that neither those that write along it nor those that read across meet in a bank.

namespace sparsekiln {

enum : int {
  kTransposedRows = 32,
  kTransposedPitch = 33,  ///< words of a row in shared memory
  kTransposedWords = kTransposedRows * kTransposedPitch,
};

/// The shared memory of a warp's tile.
template <class Config>
__device__ __forceinline__ unsigned* tile_of(int warp) {
  if constexpr (Config::images_dynamic) {
    extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
    return reinterpret_cast<unsigned*>(dynamic_shared_memory) + warp * kTransposedWords;
  } else {
    __shared__ unsigned words[Config::image_warps * kTransposedWords];
    return words + warp * kTransposedWords;
  }
}

/// Transposes matrices of [rows][columns] elements by the tiles of a warp. Addresses and strides are
/// multiples of kFromUnit and of kToUnit bytes, at most 16, by which elements are read and written. The last
/// unit that is written of a row may reach past its end, to where its stride has room.
template <class Element, int kFromUnit, int kToUnit>
struct WarpTransposition {
  enum : int {
    kElement = static_cast<int>(sizeof(Element)),
    kPerWord = 4 / kElement,
    kRows = kTransposedRows,
    kColumns = 32 * kPerWord,
    kPitch = kTransposedPitch,
  };

  /// Reads a tile into shared memory; what it lacks becomes zeros.
  __device__ static __forceinline__ void load(unsigned* shared, const Element* from, long long stride,
                                              int rows, int columns) {
    enum : int {
      kUnit = kFromUnit / kElement,               ///< elements
      kRowUnits = kColumns / kUnit,               ///< of a tile
      kPasses = kRows * kRowUnits / 32,           ///< units of a lane
      kBatch = kPasses < 16 ? int{kPasses} : 16,  ///< that are on their way at once
      kUnitWords = kFromUnit < 4 ? 1 : kFromUnit / 4,
    };
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto row_of = [=](int pass) { return (pass * 32 + lane) / kRowUnits; };
    const auto column_of = [=](int pass) { return (pass * 32 + lane) % kRowUnits * kUnit; };
#pragma unroll 1
    for (int first = 0; first < kPasses; first += kBatch) {
      unsigned words[kBatch][kUnitWords];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int v = 0; v < kUnitWords; ++v) words[i][v] = 0;
        const int row = row_of(first + i);
        const int column = column_of(first + i);
        if (row >= rows || column >= columns) continue;
        const Element* const place = from + row * stride + column;
        if constexpr (kFromUnit < 4)
          words[i][0] = *place;
        else
          ptx::load_global(place, words[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        unsigned* const row = shared + row_of(first + i) * kPitch;
        const int column = column_of(first + i);
        if constexpr (kFromUnit < 4) {
          reinterpret_cast<Element*>(row)[column] = static_cast<Element>(words[i][0]);
        } else {
#pragma unroll
          for (int v = 0; v < kUnitWords; ++v) row[column / kPerWord + v] = words[i][v];
        }
      }
    }
  }

  /// Writes a tile of so many rows and columns: `to` is where the first column begins, as a row.
  __device__ static __forceinline__ void store(const unsigned* shared, Element* to, long long stride,
                                               int rows, int columns) {
    enum : int {
      kUnit = kToUnit / kElement,  ///< rows
      kUnits = kRows / kUnit,
    };
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = lane % kUnits * kUnit;
#pragma unroll 4
    for (int pass = 0; pass < 32 / kUnit; ++pass) {
      const int word = pass * kUnit + lane / kUnits;
      unsigned column[kUnit];  // a word of each row: one column of it, or two
#pragma unroll
      for (int v = 0; v < kUnit; ++v) column[v] = shared[(row + v) * kPitch + word];
#pragma unroll
      for (int part = 0; part < kPerWord; ++part) {
        const int number = word * kPerWord + part;
        if (row >= rows || number >= columns) continue;
        write(to + number * stride + row, column, part);
      }
    }
  }

 private:
  template <int kUnit>
  __device__ static __forceinline__ void write(Element* to, const unsigned (&column)[kUnit], int part) {
    if constexpr (kToUnit < 4) {
      *to = static_cast<Element>(column[0] >> (part * 16));
    } else {
      unsigned words[kToUnit / 4];
#pragma unroll
      for (int v = 0; v < kToUnit / 4; ++v) {
        if constexpr (kPerWord == 1)
          words[v] = column[v];
        else
          words[v] = __byte_perm(column[2 * v], column[2 * v + 1], part == 0 ? 0x5410 : 0x7632);
      }
      if constexpr (kToUnit == 4)
        *reinterpret_cast<unsigned*>(to) = words[0];
      else
        ptx::store_global(to, words);
    }
  }
};

/// The largest power of two, of 16 at most, that divides a number of bytes.
__device__ constexpr int unit_of(int bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
}

/// The images of one activation, and its rows. Functions are told how many positions an image has, and
/// kPositions if they are constant, otherwise 0. Config names image_alignment (bytes that addresses of images
/// and their distances are multiples of), image_warps (warps of a CTA that transpose), threads, and
/// images_dynamic (the tiles are in dynamic shared memory, of which there is enough; otherwise they are in
/// static).
template <class Config, class ElementType, int kFeatures, int kPositions>
struct TransposedImages {
  using Element = ElementType;
  enum : int {
    kElement = static_cast<int>(sizeof(Element)),
    kOfRow = 16 / kElement,
    kRow = (kFeatures + kOfRow - 1) / kOfRow * kOfRow,  ///< elements from one row to the next
    /// What the address of a feature is a multiple of, as far as 16 bytes.
    kUnit = unit_of((kPositions == 0 ? 1 : kPositions % 16) * kElement | Config::image_alignment),
    /// What a row has whole units of: what follows them was not written.
    kRowUnit = unit_of(kFeatures % 16 * kElement),
  };

  /// What the rows of n images take: a multiple of 16.
  __device__ static __forceinline__ long long bytes(int n, int positions) {
    return static_cast<long long>(n) * positions * (kRow * kElement);
  }
  /// The features of an image are the rows of what is read.
  __device__ static __forceinline__ void to_rows(const Element* images, long long stride, Element* rows,
                                                 int n, int positions) {
    each_tile<WarpTransposition<Element, kUnit, 16>>(n, kFeatures, positions, images, stride, positions, rows,
                                                     static_cast<long long>(positions) * kRow, kRow);
  }
  __device__ static __forceinline__ void to_images(const Element* rows, Element* images, long long stride,
                                                   int n, int positions) {
    each_tile<WarpTransposition<Element, kRowUnit, kUnit>>(n, positions, kFeatures, rows,
                                                           static_cast<long long>(positions) * kRow, kRow,
                                                           images, stride, positions);
  }

 private:
  /// Transposes n matrices of height × width elements, which are `image` elements apart, and rows `row`
  /// elements: by all warps of the grid, each of which takes the tiles of its number, + the number of warps,
  /// …
  template <class Transposition>
  __device__ static __forceinline__ void each_tile(int n, int height, int width, const Element* from,
                                                   long long from_image, int from_row, Element* to,
                                                   long long to_image, int to_row) {
    const int down = (height + Transposition::kRows - 1) / Transposition::kRows;
    const int tiles =
        down * ((width + Transposition::kColumns - 1) / Transposition::kColumns);  // of a matrix
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= Config::image_warps) return;
    unsigned* const shared = tile_of<Config>(warp);
    const long long cta = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
    const long long number = cta * Config::image_warps + warp;
    const long long warps = static_cast<long long>(gridDim.x) * gridDim.y * Config::image_warps;
    long long image = number / tiles;
    int tile = static_cast<int>(number % tiles);
    const long long images_on = warps / tiles;
    const int tiles_on = static_cast<int>(warps % tiles);
#pragma unroll 1
    while (image < n) {
      const int row = tile % down * Transposition::kRows;
      const int column = tile / down * Transposition::kColumns;
      Transposition::load(shared, from + image * from_image + static_cast<long long>(row) * from_row + column,
                          from_row, height - row, width - column);
      __syncwarp();
      Transposition::store(shared, to + image * to_image + static_cast<long long>(column) * to_row + row,
                           to_row, height - row, width - column);
      __syncwarp();  // the next tile overwrites it
      image += images_on;
      tile += tiles_on;
      if (tile >= tiles) {
        tile -= tiles;
        ++image;
      }
    }
  }
};

/// Where the rows of a launch of n images begin in the workspace: after the counters and the sums. These take
/// Config::rows_begin bytes, and rows_begin_of_tile more for each tile of tile_n points. Config also names
/// x_features and y_features, of the images, for a gradient of the weight those of dy as y's; x_positions and
/// y_positions, 0 where they come with the launch; and x_displaced, whether taps displace x.
template <class Config>
struct WorkspaceRows {
  char* begin;
  int n;
  const Images<Config> extents;

  __device__ __forceinline__ WorkspaceRows(void* workspace, int images, const ImageExtents& launched)
      : n(images), extents(launched) {
    long long tiles = 1;
    if constexpr (Config::rows_begin_of_tile != 0)
      tiles = (static_cast<long long>(images) * extents.rows() + Config::tile_n - 1) / Config::tile_n;
    begin = static_cast<char*>(workspace) + Config::rows_begin + tiles * Config::rows_begin_of_tile;
  }
  __device__ __forceinline__ int x_positions() const {
    if constexpr (Config::dynamic_images)
      return Config::x_displaced ? input_positions() : output_positions();
    else
      return Config::x_positions;
  }
  __device__ __forceinline__ int y_positions() const {
    if constexpr (Config::dynamic_images)
      return Config::x_displaced ? output_positions() : input_positions();
    else
      return Config::y_positions;
  }

 private:
  __device__ __forceinline__ int input_positions() const {
    return extents.input_d() * extents.input_h() * extents.input_w();
  }
  __device__ __forceinline__ int output_positions() const {
    return extents.output_d() * extents.output_h() * extents.output_w();
  }
};

/// The rows of a product y = x · Wᵀ.
template <class Config>
struct ProductRows : WorkspaceRows<Config> {
  using X = TransposedImages<Config, typename Config::Element, Config::x_features, Config::x_positions>;
  using Y =
      TransposedImages<Config, typename Config::Output::Element, Config::y_features, Config::y_positions>;
  using OfX = typename X::Element;
  using OfY = typename Y::Element;
  enum : int { kXStride = X::kRow, kYStride = Y::kRow };
  using WorkspaceRows<Config>::WorkspaceRows;

  __device__ __forceinline__ OfX* x() const { return reinterpret_cast<OfX*>(this->begin); }
  __device__ __forceinline__ OfX* z() const {
    return reinterpret_cast<OfX*>(this->begin + X::bytes(this->n, this->x_positions()));
  }
  __device__ __forceinline__ OfY* y() const {
    return reinterpret_cast<OfY*>(this->begin +
                                  (Config::has_z ? 2 : 1) * X::bytes(this->n, this->x_positions()));
  }
  __device__ __forceinline__ OfY* residual() const {
    return reinterpret_cast<OfY*>(reinterpret_cast<char*>(y()) + Y::bytes(this->n, this->y_positions()));
  }
  /// The epilogue arguments of the product, which is one of rows.
  template <class Arguments>
  __device__ __forceinline__ Arguments arguments(Arguments given) const {
    if constexpr (Config::has_z) {
      given.z = z();
      given.z_stride = X::kRow;
    }
    if constexpr (Config::has_residual) {
      given.residual = residual();
      given.residual_stride = Y::kRow;
    }
    return given;
  }
};

/// The kernel before a product: the rows of all that it reads, of y where beta is not 0.
template <class Config, class Arguments>
__device__ __forceinline__ void transpose_operands(const typename Config::Element* x,
                                                   const typename Config::Output::Element* y, void* workspace,
                                                   int n, long long x_stride, long long y_stride,
                                                   const Arguments& given) {
  using Rows = ProductRows<Config>;
  const Rows rows(workspace, n, given.images);
  Rows::X::to_rows(x, x_stride, rows.x(), n, rows.x_positions());
  if constexpr (Config::has_z) Rows::X::to_rows(given.z, given.z_stride, rows.z(), n, rows.x_positions());
  if constexpr (Config::has_residual)
    Rows::Y::to_rows(given.residual, given.residual_stride, rows.residual(), n, rows.y_positions());
  if constexpr (Config::scales) {
    if (given.beta != 0) Rows::Y::to_rows(y, y_stride, rows.y(), n, rows.y_positions());
  }
}

/// The kernel after it.
template <class Config>
__device__ __forceinline__ void transpose_result(typename Config::Output::Element* y, void* workspace, int n,
                                                 long long y_stride, const ImageExtents& images) {
  using Rows = ProductRows<Config>;
  const Rows rows(workspace, n, images);
  Rows::Y::to_images(rows.y(), y, y_stride, n, rows.y_positions());
}

/// The rows of a gradient of the weight.
template <class Config>
struct GradientRows : WorkspaceRows<Config> {
  using Element = typename Config::Element;
  using X = TransposedImages<Config, Element, Config::x_features, Config::x_positions>;
  using Dy = TransposedImages<Config, Element, Config::y_features, Config::y_positions>;
  enum : int { kXStride = X::kRow, kDyStride = Dy::kRow };
  using WorkspaceRows<Config>::WorkspaceRows;

  __device__ __forceinline__ Element* x() const { return reinterpret_cast<Element*>(this->begin); }
  __device__ __forceinline__ Element* dy() const {
    return reinterpret_cast<Element*>(this->begin + X::bytes(this->n, this->x_positions()));
  }
  __device__ __forceinline__ Element* z() const {
    return reinterpret_cast<Element*>(this->begin + X::bytes(this->n, this->x_positions()) +
                                      Dy::bytes(this->n, this->y_positions()));
  }
  /// A convolution has one pair at most.
  template <class Pairs>
  __device__ __forceinline__ Pairs pairs(const Pairs& given) const {
    Pairs rows{};
    rows.pair[0] = {x(), dy(), Config::has_derivative ? z() : nullptr};
    rows.count = given.count;
    return rows;
  }
};

/// The kernel before a gradient of the weight.
template <class Config, class Pairs>
__device__ __forceinline__ void transpose_pair(const Pairs& given, void* workspace, int n, long long x_stride,
                                               long long dy_stride, long long z_stride,
                                               const ImageExtents& images) {
  using Rows = GradientRows<Config>;
  using Element = typename Rows::Element;
  // Read at once, so that the compiler needs no address of the parameter in a register.
  const auto* const x = static_cast<const Element*>(ptx::kept(given.pair[0].x));
  const auto* const dy = static_cast<const Element*>(ptx::kept(given.pair[0].dy));
  const auto* const z = static_cast<const Element*>(ptx::kept(given.pair[0].z));
  if (given.count == 0) return;
  const Rows rows(workspace, n, images);
  Rows::X::to_rows(x, x_stride, rows.x(), n, rows.x_positions());
  Rows::Dy::to_rows(dy, dy_stride, rows.dy(), n, rows.y_positions());
  if constexpr (Config::has_derivative) Rows::Dy::to_rows(z, z_stride, rows.z(), n, rows.y_positions());
}

}  // namespace sparsekiln
