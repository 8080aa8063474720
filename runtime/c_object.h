#pragma once

#include <sparsekiln/c.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "compiler/computation_fields.h"
#include "runtime/c_structs.h"

// What the files of the C interface share: its objects, errors as a status, and structs with a size.

struct sk_layout {
  sparsekiln::Layout layout;
  std::string digest;
};

namespace sparsekiln {

/// The text of each of computation_fields().
using FieldTexts = std::vector<std::string>;

}  // namespace sparsekiln

struct sk_kernel {
  explicit sk_kernel(sparsekiln::Kernel of) : kernel(std::move(of)) {
    sparsekiln::FieldTexts texts;
    for (const sparsekiln::ComputationField& field : sparsekiln::computation_fields())
      texts.push_back(field.text(kernel.binary().operands));
    fields = std::make_shared<const sparsekiln::FieldTexts>(std::move(texts));
  }

  sparsekiln::Kernel kernel;
  std::shared_ptr<const sparsekiln::FieldTexts> fields;  // no relayout changes them
  std::string target, config, key;                       // as they were last described
};

namespace sparsekiln {

/// Keeps an error for sk_error_message, and gives its status.
sk_status failed(sk_status status, const char* message, const std::string& log = {}) noexcept;
[[nodiscard]] sk_status status_of(ErrorKind kind);

/// Runs `body`; what it throws becomes the status and the message.
template <typename Body>
sk_status guarded(const Body& body) noexcept {
  try {
    body();
    return SK_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what(), error.log());
  } catch (const std::bad_alloc&) {
    return failed(SK_INTERNAL, "out of memory");
  } catch (const std::exception& error) {
    return failed(SK_INTERNAL, error.what());
  } catch (...) {
    return failed(SK_INTERNAL, "an exception of no known type");
  }
}

template <typename T>
T& given(T* object, const char* name) {
  if (object == nullptr)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is null; an object of this library would work", name));
  return *object;
}

/// Bytes of the first version of each struct: up to the end of the member that was its last.
template <typename Struct>
constexpr std::size_t kFirstSize = 0;
template <>
inline constexpr std::size_t kFirstSize<sk_pattern> =
    offsetof(sk_pattern, extra_edges) + sizeof(sk_pattern::extra_edges);
template <>
inline constexpr std::size_t kFirstSize<sk_options> =
    offsetof(sk_options, field_count) + sizeof(sk_options::field_count);
template <>
inline constexpr std::size_t kFirstSize<sk_launch> =
    offsetof(sk_launch, reserved) + sizeof(sk_launch::reserved);

/// A caller's struct, with the defaults that its init function sets.
template <typename Struct>
Struct taken(const Struct* object, void (*init)(Struct*, std::size_t), const char* name) {
  Struct defaults;
  init(&defaults, sizeof(defaults));
  return read_struct(&given(object, name), defaults, kFirstSize<Struct>, name);
}

/// Writes a view as large as the caller's.
template <typename Struct>
void give_view(Struct* view, const Struct& value) {
  write_struct(view, size_to_write(&given(view, "view"), "view"), value);
}

}  // namespace sparsekiln
