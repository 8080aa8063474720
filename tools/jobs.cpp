#include "tools/jobs.h"

#include <iterator>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/computation_fields.h"
#include "compiler/layout_file/disk.h"
#include "runtime/build.h"
#include "runtime/stored_requests.h"
#include "tools/json_tree.h"

namespace sparsekiln::tools {
namespace {

namespace fs = std::filesystem;

/// A job of options whose target is set. Packs that happen to be in the environment do not show in what is
/// made.
KernelJob job_for(const std::string& from, const Layout& layout, const Options& options) {
  BuildJob job = job_of(layout, options);
  job.environment_packs = false;
  std::string name =
      fmt::format("{}: {} {} {} batch {} for {}", printable(from), sparsekiln::name(options.operation),
                  to_string(options.block), sparsekiln::name(options.dtype), to_string(options.batch),
                  job.target.to_string());
  return {std::move(name), std::move(job)};
}

// A jobs file

[[noreturn]] void fail(const fs::path& file, const JsonNode& node, std::string_view wrong) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{}:{}: {}", printable(file.string()), node.line, wrong));
}

using Kind = JsonNode::Kind;

/// A key of a job: how one value of it is put into KernelArguments. A key that is an axis has a list of
/// values, and a job stands for all combinations.
struct Key {
  std::string name;
  bool axis;
  std::vector<Kind> kinds;  ///< that a value may have
  std::string wants;
  std::function<void(KernelArguments&, const JsonNode&)> set;
  std::string alias = {};  ///< another name; empty: there is none

  [[nodiscard]] bool is_called(std::string_view text) const {
    return name == text || (!alias.empty() && alias == text);
  }
};

auto text_into(std::string KernelArguments::* field) {
  return [field](KernelArguments& arguments, const JsonNode& node) { arguments.*field = node.text; };
}

auto number_into(std::int64_t KernelArguments::* field) {
  return [field](KernelArguments& arguments, const JsonNode& node) {
    const char* const end = node.text.data() + node.text.size();
    const auto [rest, status] = std::from_chars(node.text.data(), end, arguments.*field);
    if (status != std::errc{} || rest != end)
      throw Error(ErrorKind::invalid_argument, fmt::format("{} is not a whole number", printable(node.text)));
  };
}

std::vector<Kind> kinds_of(ComputationField::Kind kind) {
  switch (kind) {
    case ComputationField::Kind::word:
      return {Kind::text};
    case ComputationField::Kind::flag:
      return {Kind::boolean};
    case ComputationField::Kind::number:
      return {Kind::number};
    case ComputationField::Kind::word_or_number:
      return {Kind::text, Kind::number};
  }
  return {};
}

/// The key of the field that stands at `index` in a KernelArguments.
Key key_of(const ComputationField& field, std::size_t index) {
  const bool flag = field.kind == ComputationField::Kind::flag;
  const char* const quote = field.kind == ComputationField::Kind::number ? "" : "\"";
  return {field.job_key(),
          !field.axis.empty(),
          kinds_of(field.kind),
          flag ? "true or false"
               : fmt::format("{} such as {}{}{}", field.axis.empty() ? "a value" : field.axis, quote,
                             field.example, quote),
          [index, flag](KernelArguments& arguments, const JsonNode& node) {
            arguments.fields[index] = flag ? (node.truth ? "yes" : "no") : node.text;
          },
          field.job_key_alias()};
}

std::vector<Key> make_keys() {
  std::vector<Key> keys{
      {"layouts",
       true,
       {Kind::text},
       "layout files",
       [](KernelArguments& arguments, const JsonNode& node) { arguments.file = node.text; }},
      {"archs", true, {Kind::text}, "architectures such as \"sm_90\"", text_into(&KernelArguments::target)}};
  const auto fields = computation_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) keys.push_back(key_of(fields[i], i));
  keys.push_back({"config",
                  false,
                  {Kind::text},
                  "a config such as \"mma tile_n=64 warps=2\"",
                  text_into(&KernelArguments::config)});
  keys.push_back(
      {"attached", false, {Kind::boolean}, "true or false", [](KernelArguments& r, const JsonNode& node) {
         r.attached = node.truth;
       }});
  keys.push_back(
      {"transposed", false, {Kind::boolean}, "true or false", [](KernelArguments& r, const JsonNode& node) {
         r.transposed = node.truth;
       }});
  keys.push_back(
      {"taps", false, {Kind::text}, "a file of taps", [](KernelArguments& r, const JsonNode& node) {
         r.taps = node.text;
       }});
  keys.push_back(
      {"in_features", false, {Kind::number}, "a whole number", number_into(&KernelArguments::in_features)});
  keys.push_back(
      {"out_features", false, {Kind::number}, "a whole number", number_into(&KernelArguments::out_features)});
  return keys;
}

const std::vector<Key>& known_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

/// The values of a key, which are of the kinds that it takes.
std::vector<const JsonNode*> values_of(const fs::path& file, const Key& key, const JsonNode& node) {
  const auto fits = [&](const JsonNode& value) {
    return std::find(key.kinds.begin(), key.kinds.end(), value.kind) != key.kinds.end();
  };
  if (!key.axis) {
    if (!fits(node))
      fail(file, node,
           fmt::format("'{}' is {}; it takes {}", printable(node.name), node.kind_name(), key.wants));
    return {&node};
  }
  if (node.kind != Kind::list || node.items.empty())
    fail(file, node,
         fmt::format("'{}' is {}{}; it takes a list of {}", key.name,
                     node.kind == Kind::list ? "an empty list" : node.kind_name(), "", key.wants));
  std::vector<const JsonNode*> values;
  for (const JsonNode& value : node.items) {
    if (!fits(value))
      fail(file, value,
           fmt::format("in '{}' there is {}; it takes {}", key.name, value.kind_name(), key.wants));
    values.push_back(&value);
  }
  return values;
}

/// Reads one jobs file.
class JobsFile {
 public:
  JobsFile(const fs::path& file, const std::vector<std::string>& archs, const fs::path& cache_dir,
           LayoutFiles& layouts)
      : file_(file), archs_(archs), cache_dir_(cache_dir), layouts_(layouts) {}

  std::vector<KernelJob> read() {
    const JsonNode root = parse_json(layout_file::read_file(file_), file_);
    if (root.kind != Kind::object)
      fail(file_, root, fmt::format("a jobs file is an object with 'jobs', not {}", root.kind_name()));
    const JsonNode* jobs = nullptr;
    const JsonNode* archs = nullptr;
    for (const JsonNode& node : root.items) {
      if (node.name == "jobs") {
        jobs = &node;
      } else if (node.name == "archs") {
        archs = &node;
      } else {
        fail(file_, node, fmt::format("there is no key '{}' here: jobs, archs", printable(node.name)));
      }
    }
    if (jobs == nullptr) fail(file_, root, "there is no 'jobs'");
    if (jobs->kind != Kind::list || jobs->items.empty())
      fail(file_, *jobs, "'jobs' takes a list of one object or more");
    for (const JsonNode& job : jobs->items) expand(job, archs);
    return std::move(jobs_);
  }

 private:
  struct Axis {
    const Key* key;
    std::vector<const JsonNode*> values;
  };

  /// All combinations of a job's axes.
  void expand(const JsonNode& job, const JsonNode* archs) {
    if (job.kind != Kind::object)
      fail(file_, job, fmt::format("a job is an object, not {}", job.kind_name()));
    std::vector<Axis> axes;
    for (const JsonNode& node : job.items) {
      const auto key = std::find_if(known_keys().begin(), known_keys().end(),
                                    [&](const Key& k) { return k.is_called(node.name); });
      if (key == known_keys().end()) {
        std::string known;
        for (const Key& one : known_keys()) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
        fail(file_, node, fmt::format("there is no key '{}' in a job: {}", printable(node.name), known));
      }
      if (std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.key == &*key; }))
        fail(file_, node, fmt::format("'{}' is given twice in a job", key->name));
      if (key->name == "archs")
        archs = &node;
      else
        axes.push_back({&*key, values_of(file_, *key, node)});
    }
    // Values are checked one after the other, in this order: taps are of a convolution, which has more words
    // where it is transposed.
    for (const std::string_view first : {"conv", "transposed"})
      std::stable_partition(axes.begin(), axes.end(),
                            [&](const Axis& axis) { return axis.key->name == first; });
    if (std::none_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.key->name == "layouts"; }))
      fail(file_, job, "a job has 'layouts', a list of layout files");
    combine(axes, 0, {}, job, archs_of(job, archs));
  }

  /// The archs of the command line, else of the job, else of the file.
  std::vector<std::pair<std::string, const JsonNode*>> archs_of(const JsonNode& job, const JsonNode* node) {
    std::vector<std::pair<std::string, const JsonNode*>> archs;
    if (!archs_.empty()) {
      for (const std::string& arch : with_plain_archs(archs_)) archs.emplace_back(arch, &job);
      return archs;
    }
    if (node == nullptr)
      fail(file_, job, "for which 'archs'? Name them in the job or in the file, or give --arch");
    const Key& key = *std::find_if(known_keys().begin(), known_keys().end(),
                                   [](const Key& one) { return one.name == "archs"; });
    for (const JsonNode* const value : values_of(file_, key, *node)) {
      at_line(*value, [&] {
        for (const std::string& arch : with_plain_archs({value->text})) archs.emplace_back(arch, value);
      });
    }
    return archs;
  }

  void combine(const std::vector<Axis>& axes, std::size_t next, KernelArguments arguments,
               const JsonNode& job, const std::vector<std::pair<std::string, const JsonNode*>>& archs) {
    if (next < axes.size()) {
      for (const JsonNode* const value : axes[next].values) {
        KernelArguments chosen = arguments;
        at_line(*value, [&] { axes[next].key->set(chosen, *value); });
        if (axes[next].key->name == "taps") chosen.taps = file_.parent_path() / chosen.taps;
        // What a value says alone is wrong where it stands; what only goes wrong together, where the job
        // begins.
        if (axes[next].key->name != "transposed")
          at_line(*value, [&] { static_cast<void>(chosen.options()); });
        if (axes[next].key->name == "layouts")
          at_line(*value, [&] { static_cast<void>(layouts_.load(path_of(chosen))); });
        combine(axes, next + 1, std::move(chosen), job, archs);
      }
      return;
    }
    for (const auto& [arch, node] : archs) {
      arguments.target = arch;
      arguments.cache_dir = cache_dir_;
      at_line(job, [&] {
        jobs_.push_back(job_for(fmt::format("{}:{}: {}", file_.string(), job.line, arguments.file.string()),
                                layouts_.load(path_of(arguments)), arguments.options()));
      });
    }
  }

  /// Layouts lie relative to the file that names them.
  [[nodiscard]] fs::path path_of(const KernelArguments& arguments) const {
    return file_.parent_path() / arguments.file;
  }

  template <typename Action>
  void at_line(const JsonNode& node, Action action) const {
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_argument && error.kind() != ErrorKind::io) throw;
      fail(file_, node, error.what());
    }
  }

  const fs::path& file_;
  const std::vector<std::string>& archs_;
  const fs::path& cache_dir_;
  LayoutFiles& layouts_;
  std::vector<KernelJob> jobs_;
};

}  // namespace

const Layout& LayoutFiles::load(const fs::path& file) {
  const auto known = loaded_.find(file);
  return known != loaded_.end() ? known->second : loaded_.emplace(file, Layout::load(file)).first->second;
}

std::vector<std::string> with_plain_archs(const std::vector<std::string>& archs) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& arch) {
    if (std::find(all.begin(), all.end(), arch) == all.end()) all.push_back(arch);
  };
  for (const std::string& arch : archs) {
    const Target target = Target::parse(arch);
    add(target.to_string());
    if (target.compute_capability() != 0 && std::isdigit(static_cast<unsigned char>(target.arch.back())) == 0)
      add(fmt::format("sm_{}:{}", target.compute_capability(), target.workers));
  }
  return all;
}

std::vector<KernelJob> jobs_of_layout(const KernelArguments& arguments, const std::vector<std::string>& archs,
                                      LayoutFiles& layouts) {
  std::vector<KernelJob> jobs;
  Options options = arguments.options();
  for (const std::string& arch : with_plain_archs(archs)) {
    options.target = arch;
    jobs.push_back(job_for(arguments.file.string(), layouts.load(arguments.file), options));
  }
  return jobs;
}

std::vector<KernelJob> jobs_of_file(const fs::path& file, const std::vector<std::string>& archs,
                                    const fs::path& cache_dir, LayoutFiles& layouts) {
  return JobsFile(file, archs, cache_dir, layouts).read();
}

std::vector<KernelJob> jobs_of_store(const fs::path& cache_dir, const std::vector<std::string>& archs,
                                     std::vector<std::string>& left_out) {
  StoredRequests seen = stored_requests_in(cache_dir);
  left_out = std::move(seen.left_out);
  std::vector<KernelJob> jobs;
  for (const StoredRequest& kernel : seen.kernels) {
    Options options = kernel.options;
    options.cache_dir = cache_dir;
    const std::string from = fmt::format("layout {}", kernel.layout.digest().hex().substr(0, 8));
    for (const std::string& arch :
         archs.empty() ? std::vector<std::string>{options.target} : with_plain_archs(archs)) {
      const bool same = kernel.current && arch == kernel.options.target;
      options.target = arch;
      try {
        KernelJob job = job_for(from, kernel.layout, options);
        // The plan of the store, pinned or tuned; where another compiler made it, the plan is chosen again.
        if (same) job.job.plan = kernel.plan;
        jobs.push_back(std::move(job));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::invalid_argument) throw;
        left_out.push_back(fmt::format("{} for {}: {}", from, arch, error.what()));
      }
    }
  }
  return jobs;
}

std::vector<KernelJob> jobs_of(const KernelArguments& what, const std::vector<fs::path>& files,
                               const std::vector<std::string>& archs, bool from_store, Answer& answer) {
  std::vector<KernelJob> jobs;
  const auto add = [&](std::vector<KernelJob> more) {
    jobs.insert(jobs.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  LayoutFiles layouts;
  for (const fs::path& file : files) {
    if (file.extension() == ".json") {
      add(jobs_of_file(file, archs, what.cache_dir, layouts));
      continue;
    }
    if (archs.empty())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("{}: for which architectures? Such as --arch sm_80,sm_90", printable(file.string())));
    KernelArguments of_file = what;
    of_file.file = file;
    add(jobs_of_layout(of_file, archs, layouts));
  }
  if (from_store) {
    std::vector<std::string> left_out;
    add(jobs_of_store(what.cache_dir, archs, left_out));
    for (const std::string& one : left_out) answer.warnings.push_back("left out: " + one);
  }
  return jobs;
}

}  // namespace sparsekiln::tools
