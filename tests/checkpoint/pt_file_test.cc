// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/pt_file.h"

#include <doctest/doctest.h>

#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/pickle.h"

namespace {

using namespace ddprun::ddp;
using namespace std::string_literals;

// An archive whose pickle is `program`, with the storages 0, 1, ...
std::string pt_file(const std::string& program, const std::vector<std::string>& storages = {},
                    const std::string& byteorder = "little") {
  std::vector<zip::NewRecord> records{{"f/data.pkl", program.size()},
                                      {"f/byteorder", byteorder.size()}};
  std::vector<std::string> contents{program, byteorder};
  for (const std::string& storage : storages) {
    records.push_back({"f/data/" + std::to_string(contents.size() - 2), storage.size()});
    contents.push_back(storage);
  }
  zip::Layout layout = zip::lay_out(records);
  std::string file(layout.file_bytes, '\0');
  for (std::size_t i = 0; i < contents.size(); ++i) {
    contents[i].copy(file.data() + layout.records[i].begin, contents[i].size());
  }
  zip::complete(layout, file.data());
  return file;
}

std::string why(const std::string& program, const std::vector<std::string>& storages = {}) {
  ddprun::Result<StoredTensors> read = read_tensors(pt_file(program, storages));
  return read ? "" : read.error().context;
}

std::string text(const std::string& value) {
  return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value;
}

// A float tensor over storage 0 of `elements`, with the pickled shape and strides.
std::string tensor(const std::string& offset, const std::string& shape, const std::string& strides,
                   const std::string& storage_class = "ctorch\nFloatStorage\n") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + storage_class + text("0") +
         text("cpu") + "K\x06tQ" + offset + shape + strides + "\x89" +
         "ccollections\nOrderedDict\n)RtR";
}

std::string dict_of(const std::string& value) {
  return "\x80\x02}" + text("w") + value + "s.";
}

const std::string kSixFloats(24, '\1');

}  // namespace

TEST_SUITE("ddp/checkpoint/pt_file") {
  TEST_CASE("what is laid out is read back") {
    std::vector<StoredTensor> tensors = {{.name = "conv.weight", .dtype = "F32", .shape = {2, 3}},
                                         {.name = "steps", .dtype = "I64", .shape = {}},
                                         {.name = "nothing", .dtype = "BF16", .shape = {0, 7}},
                                         {.name = "long", .dtype = "U8", .shape = {1, 300}},
                                         {.name = "new kind", .dtype = "U16", .shape = {3}}};
    FileLayout layout = lay_out(TensorFormat::Pt, tensors, {}).value();
    std::string file(layout.file_bytes, '\0');
    complete(layout, file.data());
    StoredTensors read = read_tensors(file).value();
    CHECK(read.tensors == layout.tensors);
    for (const StoredTensor& tensor : read.tensors) CHECK(tensor.begin % 64 == 0);
    CHECK(read.values.empty());
  }

  TEST_CASE("tensors that cannot be written are refused by name") {
    CHECK(lay_out(TensorFormat::Pt, {{.name = "a", .dtype = "F32"}, {.name = "a", .dtype = "F32"}},
                  {})
              .error()
              .context == "tensor 'a' is there twice and cannot be written as .pt");
    CHECK(lay_out(TensorFormat::Pt, {{.name = "a", .dtype = "F4"}}, {}).error().context ==
          "tensor 'a' of dtype F4 cannot be written as .pt");
  }

  TEST_CASE("values and nested dicts have joined names") {
    StoredTensors read =
        read_tensors(pt_file("\x80\x02}(" + text("epoch") + "K\x07" + text("rate") +
                                 "G\x3f\xb9\x99\x99\x99\x99\x99\x9a" + text("state") + "}K\x00"s +
                                 tensor("K\x02", "K\x02K\x02\x86", "K\x02K\x01\x86") + "s" +
                                 text("list") +
                                 "](N\x88\x8a\x01\xff"
                                 "eu.",
                             {kSixFloats}))
            .value();
    REQUIRE(read.tensors.size() == 1);
    CHECK(read.tensors[0].name == "state/0");
    CHECK(read.tensors[0].end - read.tensors[0].begin == 16);
    CHECK(read.values == std::map<std::string, std::string>{{"epoch", "7"},
                                                            {"rate", "0.1"},
                                                            {"list/0", "none"},
                                                            {"list/1", "true"},
                                                            {"list/2", "-1"}});
  }

  TEST_CASE("strides of Python's own tensors are followed") {
    std::string storage;
    for (char c : {0, 1, 2, 3, 4, 5}) storage += std::string(4, c);
    std::string file =
        pt_file(dict_of(tensor("K\x00"s, "K\x03K\x02\x86", "K\x01K\x03\x86")), {storage});
    StoredTensor transposed = read_tensors(file).value().tensors.at(0);
    std::string copied(24, '\xff');
    copy_row_major(transposed, file, copied.data());
    std::string expected;
    for (char c : {0, 3, 1, 4, 2, 5}) expected += std::string(4, c);
    CHECK(copied == expected);
  }

  TEST_CASE("a foreign name of Python is refused, and nothing is called") {
    CHECK(why("\x80\x02"
              "cos\nsystem\n" +
              text("true") + "\x85R.") ==
          "the pickle: it asks for 'os system', which no file of tensors needs");
    CHECK(why("\x80\x02"
              "cbuiltins\neval\n)R.") ==
          "the pickle: it asks for 'builtins eval', which no file of tensors needs");
    CHECK(why("\x80\x02"
              "ctorch\nFloatStorage\n)R.") ==
          "the pickle: it calls 'torch FloatStorage' in a way that no file of tensors needs");
    CHECK(why("\x80\x04\x8c\x02os.") == "the pickle: it is of protocol 4, not 2");
    CHECK(why("\x80\x02i.") ==
          "the pickle: it has the operation 105, which no file of tensors needs");
    CHECK(why("\x80\x02]}b.") == "the pickle: it sets the state of an object");
  }

  TEST_CASE("tensors beyond their storage are refused") {
    const std::string beyond = "tensor 'w' reaches beyond its storage";
    CHECK(why(dict_of(tensor("K\x00"s, "K\x06\x85", "K\x01\x85")), {kSixFloats}) == "");
    CHECK(why(dict_of(tensor("K\x01", "K\x06\x85", "K\x01\x85")), {kSixFloats}) == beyond);
    CHECK(why(dict_of(tensor("K\x00"s, "K\x02\x85", "K\x06\x85")), {kSixFloats}) == beyond);
    CHECK(why(dict_of(tensor("K\x00"s, "K\x06\x85", "K\x01\x85")), {"four"}) == beyond);
    CHECK(why(dict_of(tensor("K\x00"s, "K\x06\x85", "K\x01\x85"))) ==
          "tensor 'w' has its bytes in a record that is not there");
    const std::string huge = "\x8a\x08\0\0\0\0\0\0\0\x40"s;  // 2^62
    CHECK(why(dict_of(tensor("K\x00"s, huge + "\x85", "K\x01\x85")), {kSixFloats}) == beyond);
    CHECK(why(dict_of(tensor(huge, "K\x06\x85", "K\x01\x85")), {kSixFloats}) == beyond);
    CHECK(why(dict_of(tensor("K\x00"s, "K\x07\x85", "K\x00\x85"s)), {kSixFloats}) ==
          "tensor 'w' has more elements than its storage");
    CHECK(why(dict_of(tensor("K\x00"s, "J\xff\xff\xff\xff\x85", "K\x01\x85")), {kSixFloats}) ==
          "the pickle: a shape has no number");
    CHECK(why(dict_of(tensor("K\x00"s, "K\x06\x85", ")")), {kSixFloats}) ==
          "the pickle: a tensor's strides do not fit");
  }

  TEST_CASE("a dict within itself ends in an answer") {
    CHECK(why("\x80\x02}q\x01" + text("w") + "h\x01s.") ==
          "its dicts are nested too deeply, or in themselves");
    // Ten lists, each of ten times the one before: as many names as 10^10.
    std::string program = "\x80\x02}" + text("w") + "]q\x00"s;
    for (char i = 0; i < 7; ++i) {
      program += "](";
      for (int j = 0; j < 40; ++j) program += "h"s + i;
      program += "eq"s + static_cast<char>(i + 1);
    }
    std::string tail;
    for (int i = 0; i < 7; ++i) tail += "\x86";
    CHECK(why(program + tail + "s.") != "");
  }

  TEST_CASE("other archives are told apart") {
    CHECK(read_tensors(pt_file("\x80\x02}.", {}, "big")).error().context ==
          "its bytes are big-endian");
    CHECK(why("\x80\x02].") == "it is no dict of tensors");
    CHECK(why("\x80\x02") == "the pickle: it is cut short");
    CHECK(read_tensors("\x80\x02\x8a\x0al\xfc").error().context ==
          "it is in the format of torch before 1.6: load it in Python and save it again");
  }

  TEST_CASE("a pickle cut anywhere is refused") {
    const std::string whole =
        pickle::write({{.name = "w", .dtype = "F32", .shape = {2, 3}}}).value();
    CHECK(pickle::read(whole).has_value());
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CHECK(!pickle::read(whole.substr(0, size)));
    }
  }
}
