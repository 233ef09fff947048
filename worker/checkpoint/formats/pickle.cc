// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/pickle.h"

#include <array>
#include <bit>
#include <unordered_map>

namespace ddprun::ddp::pickle {
namespace {

using Kind = Node::Kind;

// A dtype with the class of its storage, "" where Python has only the newer, untyped form for it.
struct DtypeName {
  const char* ours;
  const char* storage;
  const char* torch;
};

constexpr std::array kDtypes = {
    DtypeName{"F32", "torch FloatStorage", "torch float32"},
    DtypeName{"F64", "torch DoubleStorage", "torch float64"},
    DtypeName{"F16", "torch HalfStorage", "torch float16"},
    DtypeName{"BF16", "torch BFloat16Storage", "torch bfloat16"},
    DtypeName{"I64", "torch LongStorage", "torch int64"},
    DtypeName{"I32", "torch IntStorage", "torch int32"},
    DtypeName{"I16", "torch ShortStorage", "torch int16"},
    DtypeName{"I8", "torch CharStorage", "torch int8"},
    DtypeName{"U8", "torch ByteStorage", "torch uint8"},
    DtypeName{"BOOL", "torch BoolStorage", "torch bool"},
    DtypeName{"C64", "torch ComplexFloatStorage", "torch complex64"},
    DtypeName{"U16", "", "torch uint16"},
    DtypeName{"U32", "", "torch uint32"},
    DtypeName{"U64", "", "torch uint64"},
    DtypeName{"F8_E5M2", "", "torch float8_e5m2"},
    DtypeName{"F8_E4M3", "", "torch float8_e4m3fn"},
};

constexpr char kDictClass[] = "collections OrderedDict";
constexpr char kRebuild2[] = "torch._utils _rebuild_tensor_v2";
constexpr char kRebuild3[] = "torch._utils _rebuild_tensor_v3";
constexpr char kParameter[] = "torch._utils _rebuild_parameter";
constexpr char kSize[] = "torch Size";
constexpr char kUntyped[] = "torch.storage UntypedStorage";

const DtypeName* dtype_of_storage(std::string_view global) {
  for (const DtypeName& dtype : kDtypes) {
    if (*dtype.storage != '\0' && global == dtype.storage) return &dtype;
  }
  return nullptr;
}

const DtypeName* dtype_of_torch(std::string_view global) {
  for (const DtypeName& dtype : kDtypes) {
    if (global == dtype.torch) return &dtype;
  }
  return nullptr;
}

bool is_known_global(std::string_view name) {
  for (const char* known : {kDictClass, kRebuild2, kRebuild3, kParameter, kSize, kUntyped}) {
    if (name == known) return true;
  }
  return dtype_of_storage(name) != nullptr || dtype_of_torch(name) != nullptr;
}

// Thrown inside this file only, so that each of the many small steps need not hand failures on.
struct Refused {
  std::string why;
};

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out;
  for (char c : text.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

class Machine {
 public:
  Machine(std::string_view bytes, std::size_t max_nodes) : bytes_(bytes), max_nodes_(max_nodes) {}

  Program run() {
    while (step()) {
    }
    return std::move(program_);
  }

 private:
  // --- bytes ---
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) throw Refused{"it is cut short"};
    std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    std::string_view part = take(count);
    for (std::size_t i = 0; i < count; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    }
    return value;
  }
  std::string_view line() {
    std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw Refused{"it is cut short"};
    std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  // --- values ---
  Node* make(Kind kind) {
    if (program_.nodes.size() >= max_nodes_) throw Refused{"it has too many values"};
    program_.nodes.push_back(std::make_unique<Node>());
    program_.nodes.back()->kind = kind;
    return program_.nodes.back().get();
  }
  void push(Node* node) { stack_.push_back(node); }
  Node* push(Kind kind) {
    push(make(kind));
    return stack_.back();
  }
  void push_integer(Kind kind, std::int64_t value) { push(kind)->integer = value; }
  void push_text(std::string_view text) { push(Kind::Text)->text = text; }

  Node* top() {
    if (stack_.size() <= floor()) throw Refused{"it takes a value that is not there"};
    return stack_.back();
  }
  Node* pop() {
    Node* node = top();
    stack_.pop_back();
    return node;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  // What has been pushed since the last mark.
  std::vector<Node*> pop_to_mark() {
    if (marks_.empty()) throw Refused{"it takes a mark that is not there"};
    auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Node*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  void tuple(std::vector<Node*> items) { push(Kind::Tuple)->items = std::move(items); }
  void tuple_of(std::size_t count) {
    std::vector<Node*> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    tuple(std::move(items));
  }

  void add(Kind kind, const std::vector<Node*>& items) {
    Node* target = top();
    if (target->kind != kind) throw Refused{"it adds to a value that is no list or dict"};
    if (kind == Kind::Dict && items.size() % 2 != 0) throw Refused{"it has a key without a value"};
    target->items.insert(target->items.end(), items.begin(), items.end());
  }
  void add_one(Kind kind) {
    std::vector<Node*> items(kind == Kind::Dict ? 2 : 1);
    for (std::size_t i = items.size(); i > 0; --i) items[i - 1] = pop();
    add(kind, items);
  }

  void global() {
    std::string name(line());
    name += ' ';
    name += line();
    if (!is_known_global(name)) {
      throw Refused{"it asks for '" + shown(name) + "', which no file of tensors needs"};
    }
    push(Kind::Global)->text = std::move(name);
  }

  void long_integer() {
    std::uint64_t length = number(1);
    const bool may_be_unsigned = length == sizeof(std::uint64_t) + 1;
    if (length > sizeof(std::uint64_t) && !may_be_unsigned)
      throw Refused{"it has a number of more than 64 bits"};
    std::uint64_t value = number(std::min<std::uint64_t>(length, sizeof value));
    if (may_be_unsigned) {
      if (number(1) != 0) throw Refused{"it has a number of more than 64 bits"};
      push(Kind::Text)->text = std::to_string(value);
      return;
    }
    if (length > 0 && length < sizeof value && (value >> (8 * length - 1) & 1) != 0) {
      value |= ~std::uint64_t{0} << (8 * length);  // two's complement
    }
    push_integer(Kind::Int, static_cast<std::int64_t>(value));
  }

  void real() {
    std::uint64_t bits = 0;
    for (unsigned char c : take(sizeof bits)) bits = bits << 8 | c;
    push(Kind::Float)->real = std::bit_cast<double>(bits);
  }

  // ('storage', class, key, device, number of elements)
  void persistent() {
    Node* id = pop();
    if (id->kind != Kind::Tuple || id->items.size() != 5 || id->items[0]->text != "storage" ||
        id->items[1]->kind != Kind::Global || id->items[2]->kind != Kind::Text ||
        id->items[4]->kind != Kind::Int || id->items[4]->integer < 0) {
      throw Refused{"it refers to something other than a storage"};
    }
    const std::string& name = id->items[1]->text;
    const DtypeName* dtype = dtype_of_storage(name);
    if (!dtype && name != kUntyped) throw Refused{"'" + name + "' is no storage"};
    Node* storage = push(Kind::Storage);
    storage->dtype = dtype ? dtype->ours : "";
    storage->text = id->items[2]->text;
    storage->integer = id->items[4]->integer;
  }

  static std::vector<std::int64_t> numbers(const Node& node) {
    if (node.kind != Kind::Tuple && node.kind != Kind::List) throw Refused{"a shape is no tuple"};
    constexpr std::size_t kMostDimensions = 64;
    if (node.items.size() > kMostDimensions) throw Refused{"a tensor has too many dimensions"};
    std::vector<std::int64_t> values;
    for (const Node* item : node.items) {
      if (item->kind != Kind::Int || item->integer < 0) throw Refused{"a shape has no number"};
      values.push_back(item->integer);
    }
    return values;
  }

  // {'conj': True} or {'neg': True}: the bytes are not yet the values.
  static void check_metadata(const Node& metadata) {
    for (const Node* item : metadata.items) {
      if (item->text != "conj" && item->text != "neg") continue;
      throw Refused{
          "a tensor is a view that is still to be conjugated or negated: save its "
          "resolve_conj().resolve_neg()"};
    }
  }

  // (storage, offset, shape, strides, needs gradient, hooks[, dtype in version 3][, metadata])
  void tensor(const std::vector<Node*>& arguments, bool is_version3) {
    const std::size_t least = is_version3 ? 7 : 6;
    if (arguments.size() < least || arguments[0]->kind != Kind::Storage ||
        arguments[1]->kind != Kind::Int || arguments[1]->integer < 0) {
      throw Refused{"a tensor is not made as torch makes it"};
    }
    Node* made = push(Kind::Tensor);
    made->storage = arguments[0];
    made->offset = arguments[1]->integer;
    made->shape = numbers(*arguments[2]);
    made->strides = numbers(*arguments[3]);
    made->dtype = arguments[0]->dtype;
    if (is_version3) {
      const DtypeName* dtype = dtype_of_torch(arguments[6]->text);
      if (!dtype || arguments[6]->kind != Kind::Global) throw Refused{"a tensor has no dtype"};
      made->dtype = dtype->ours;
    }
    if (made->dtype.empty()) throw Refused{"a tensor has a storage without a dtype"};
    if (made->shape.size() != made->strides.size()) throw Refused{"a tensor's strides do not fit"};
    if (arguments.size() > least) check_metadata(*arguments[least]);
  }

  void reduce() {
    Node* arguments = pop();
    Node* function = pop();
    if (function->kind != Kind::Global || arguments->kind != Kind::Tuple) {
      throw Refused{"it calls something that is no function"};
    }
    const std::string& name = function->text;
    if (name == kDictClass && arguments->items.empty()) {
      push(Kind::Dict);
    } else if (name == kRebuild2 || name == kRebuild3) {
      tensor(arguments->items, name == kRebuild3);
    } else if (name == kParameter && !arguments->items.empty() &&
               arguments->items[0]->kind == Kind::Tensor) {
      push(arguments->items[0]);
    } else if (name == kSize && arguments->items.size() == 1 &&
               arguments->items[0]->kind == Kind::Tuple) {
      push(arguments->items[0]);
    } else {
      throw Refused{"it calls '" + name + "' in a way that no file of tensors needs"};
    }
  }

  // Python keeps a module's version numbers as an attribute of the dict: nothing we need.
  void build() {
    pop();
    if (top()->kind != Kind::Dict) throw Refused{"it sets the state of an object"};
  }

  void remember(std::uint64_t place) { memo_[place] = top(); }
  void recall(std::uint64_t place) {
    auto found = memo_.find(place);
    if (found == memo_.end()) throw Refused{"it recalls a value that it has not kept"};
    push(found->second);
  }

  void protocol() {
    std::uint64_t version = number(1);
    if (version != 2) throw Refused{"it is of protocol " + std::to_string(version) + ", not 2"};
  }

  // Returns whether there is more to come.
  bool step() {
    const char operation = take(1)[0];
    switch (operation) {
      case '\x80':
        protocol();
        break;
      case 'c':
        global();
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case ')':
        tuple({});
        break;
      case 't':
        tuple(pop_to_mark());
        break;
      case '\x85':
        tuple_of(1);
        break;
      case '\x86':
        tuple_of(2);
        break;
      case '\x87':
        tuple_of(3);
        break;
      case ']':
        push(Kind::List);
        break;
      case '}':
        push(Kind::Dict);
        break;
      case 'a':
        add_one(Kind::List);
        break;
      case 's':
        add_one(Kind::Dict);
        break;
      case 'e': {
        auto items = pop_to_mark();
        add(Kind::List, items);
        break;
      }
      case 'u': {
        auto items = pop_to_mark();
        add(Kind::Dict, items);
        break;
      }
      case 'N':
        push(Kind::None);
        break;
      case '\x88':
        push_integer(Kind::Bool, 1);
        break;
      case '\x89':
        push_integer(Kind::Bool, 0);
        break;
      case 'K':
        push_integer(Kind::Int, static_cast<std::int64_t>(number(1)));
        break;
      case 'M':
        push_integer(Kind::Int, static_cast<std::int64_t>(number(2)));
        break;
      case 'J':
        push_integer(Kind::Int, static_cast<std::int32_t>(number(4)));
        break;
      case '\x8a':
        long_integer();
        break;
      case 'G':
        real();
        break;
      case 'X':
        push_text(take(number(4)));
        break;
      case 'Q':
        persistent();
        break;
      case 'R':
        reduce();
        break;
      case 'b':
        build();
        break;
      case 'q':
        remember(number(1));
        break;
      case 'r':
        remember(number(4));
        break;
      case 'h':
        recall(number(1));
        break;
      case 'j':
        recall(number(4));
        break;
      case '.':
        program_.result = pop();
        return false;
      default:
        throw Refused{"it has the operation " +
                      std::to_string(static_cast<unsigned char>(operation)) +
                      ", which no file of tensors needs"};
    }
    return true;
  }

  std::string_view bytes_;
  std::size_t max_nodes_;
  std::size_t at_ = 0;
  Program program_;
  std::vector<Node*> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Node*> memo_;
};

// --- writing ---

void put_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}
void put_text(std::string& out, std::string_view text) {
  out += 'X';
  put_number(out, text.size(), 4);
  out += text;
}
void put_integer(std::string& out, std::int64_t value) {
  if (0 <= value && value < 256) {
    out += 'K';
    put_number(out, static_cast<std::uint64_t>(value), 1);
  } else {
    out += "\x8a\x08";
    put_number(out, static_cast<std::uint64_t>(value), 8);
  }
}
void put_global(std::string& out, std::string name) {
  name[name.find(' ')] = '\n';
  out += 'c' + name + '\n';
}
void put_numbers(std::string& out, const std::vector<std::int64_t>& values) {
  out += '(';
  for (std::int64_t value : values) put_integer(out, value);
  out += 't';
}

void put_tensor(std::string& out, const StoredTensor& tensor, const DtypeName& dtype,
                std::size_t key) {
  const bool is_typed = *dtype.storage != '\0';
  const std::uint64_t bytes = *byte_count(tensor.dtype, tensor.shape);
  put_global(out, is_typed ? kRebuild2 : kRebuild3);
  out += "((";
  put_text(out, "storage");
  put_global(out, is_typed ? dtype.storage : kUntyped);
  put_text(out, std::to_string(key));
  put_text(out, "cpu");
  put_integer(out,
              static_cast<std::int64_t>(is_typed ? bytes / element_bytes(tensor.dtype) : bytes));
  out += "tQ";
  put_integer(out, 0);
  put_numbers(out, tensor.shape);
  put_numbers(out, row_major_strides(tensor.shape));
  out += '\x89';  // needs no gradient
  put_global(out, kDictClass);
  out += ")R";  // no hooks
  if (!is_typed) put_global(out, dtype.torch);
  out += "tR";
}

}  // namespace

Result<Program> read(std::string_view bytes, std::size_t max_nodes) {
  try {
    return Machine(bytes, max_nodes).run();
  } catch (const Refused& refused) {
    return Error{Errc::Protocol, "the pickle: " + refused.why};
  }
}

Result<std::string> write(const std::vector<StoredTensor>& tensors) {
  std::string out = "\x80\x02}(";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    const DtypeName* found = nullptr;
    for (const DtypeName& dtype : kDtypes) {
      if (tensor.dtype == dtype.ours) found = &dtype;
    }
    if (!found || !byte_count(tensor.dtype, tensor.shape)) {
      return Error{Errc::InvalidInput, "tensor '" + tensor.name + "' of dtype " + tensor.dtype +
                                           " cannot be written as .pt"};
    }
    put_text(out, tensor.name);
    put_tensor(out, tensor, *found, i);
  }
  return out + "u.";
}

}  // namespace ddprun::ddp::pickle
