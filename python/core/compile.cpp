#include "python/core/bindings.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <sparsekiln/c.h>

#include "python/core/errors.h"
#include "python/core/kernel.h"
#include "python/core/layout.h"

namespace sparsekiln::python {
namespace {

namespace nb = nanobind;

/// sk_options and the text that its members point to.
class Wishes {
 public:
  /// `fields`: texts by the names of sk_field. `from`: other members of sk_options by their names; paths are
  /// bytes.
  Wishes(const nb::dict& fields, const nb::dict& from) {
    sk_options_init(&options_);
    texts_.reserve(2 * nb::len(fields) + 8);  // so that pointers from c_str stay valid
    const auto kept = [&](nb::handle text) {
      return texts_.emplace_back(nb::cast<std::string>(text)).c_str();
    };
    for (const auto [name, text] : fields) fields_.push_back({kept(name), kept(text)});
    options_.fields = fields_.data();
    options_.field_count = fields_.size();
    const auto text = [&](const char* name, const char*& member) {
      if (const nb::object value = from[name]; !value.is_none()) member = kept(value);
    };
    text("target", options_.target);
    text("config", options_.config);
    text("tuning", options_.tuning);
    texts_.emplace_back(nb::cast<nb::bytes>(from["cache_dir"]).c_str());
    options_.cache_dir = texts_.back().c_str();
    text("require", options_.require);
    const auto flag = [&](const char* name) { return nb::cast<bool>(from[name]) ? 1 : 0; };
    options_.attached = flag("attached");
    options_.tiered = flag("tiered");
    options_.in_features = nb::cast<std::int64_t>(from["in_features"]);
    options_.out_features = nb::cast<std::int64_t>(from["out_features"]);
    options_.tuning_seconds = nb::cast<double>(from["tuning_seconds"]);
    for (const nb::handle pack : nb::cast<nb::sequence>(from["packs"]))
      packs_.emplace_back(nb::cast<nb::bytes>(pack).c_str());
    for (const std::string& pack : packs_) pack_names_.push_back(pack.c_str());
    pack_names_.push_back(nullptr);
    options_.packs = pack_names_.data();
  }
  Wishes(const Wishes&) = delete;

  [[nodiscard]] sk_options& get() { return options_; }

 private:
  sk_options options_{};
  std::vector<std::string> texts_;
  std::vector<sk_field> fields_;
  std::vector<std::string> packs_;
  std::vector<const char*> pack_names_;
};

/// Watches a tuning run: reacts to Ctrl-C, and reports progress to the caller.
class Watch {
 public:
  explicit Watch(nb::object progress) : progress_(std::move(progress)) {}

  /// An sk_tuning_watch.
  static int goes_on(void* self, std::size_t settled, std::size_t candidates, double best_us,
                     double seconds) {
    return static_cast<Watch*>(self)->look(settled, candidates, best_us, seconds) ? 1 : 0;
  }

  /// Raises what stopped it.
  void rethrow() {
    if (!error_) return;
    error_->restore();
    throw nb::python_error();
  }

 private:
  bool look(std::size_t settled, std::size_t candidates, double best_us, double seconds) {
    if (error_) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return true;
    last_ = now;
    const nb::gil_scoped_acquire acquired;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (candidates != 0 && !progress_.is_none()) progress_(settled, candidates, best_us, seconds);
    } catch (nb::python_error& error) {
      error_ = std::make_unique<nb::python_error>(std::move(error));
    }
    return error_ == nullptr;
  }

  nb::object progress_;
  std::chrono::steady_clock::time_point last_;
  std::unique_ptr<nb::python_error> error_;
};

Kernel compile(const Layout& layout, nb::object shown, const nb::dict& fields, const nb::dict& options,
               nb::object progress) {
  Wishes wishes(fields, options);
  Watch watch(std::move(progress));
  wishes.get().tuning_watch = Watch::goes_on;
  wishes.get().tuning_context = &watch;
  sk_kernel* kernel = nullptr;
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release released;
    status = sk_compile(layout.get(), &wishes.get(), &kernel);
  }
  if (status != SK_OK) {
    watch.rethrow();
    check(status);
  }
  Kernel made(kernel, std::move(shown));
  watch.rethrow();
  return made;
}

nb::list computation_fields() {
  nb::list all;
  for (std::size_t i = 0; i < sk_field_count(); ++i) {
    sk_field_view view{};
    view.size = sizeof(view);
    check(sk_field_describe(i, &view));
    nb::dict field;
    field["name"] = view.name;
    field["argument"] = view.argument;
    field["usual"] = view.usual;
    field["help"] = view.help;
    field["is_flag"] = view.is_flag != 0;
    all.append(field);
  }
  return all;
}

}  // namespace

void bind_compile(nb::module_& module) {
  module.def("compile", compile, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  module.def("computation_fields", computation_fields);
}

}  // namespace sparsekiln::python
