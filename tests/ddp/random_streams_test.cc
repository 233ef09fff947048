// SPDX-License-Identifier: BSD-3-Clause
//
// The generators of GPUs, without a GPU: LibTorch asks what is registered as its CUDA half for
// them, and that is a fake one here.
#include "worker/ddp/random_streams.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <doctest/doctest.h>

namespace at {

// Two GPUs whose generators are those of a CPU.
struct FakeCuda : CUDAHooksInterface {
  explicit FakeCuda(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  // These two are virtual in newer LibTorch only.
  bool isBuilt() const { return true; }      // NOLINT(modernize-use-override)
  bool isAvailable() const { return true; }  // NOLINT(modernize-use-override)
  DeviceIndex deviceCount() const override { return 2; }
  const Generator& getDefaultGenerator(DeviceIndex index) const override {
    static const Generator generators[] = {make_generator<CPUGeneratorImpl>(1),
                                           make_generator<CPUGeneratorImpl>(2)};
    return generators[index];
  }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", FakeCuda);

}  // namespace at

namespace {

using namespace ddprun::ddp;

at::Device gpu(int number) {
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(number));
}

// Other tests of this process seed all of them alike.
void seed_apart(const std::vector<at::Device>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    at::Generator generator = at::globalContext().defaultGenerator(devices[i]);
    generator.set_current_seed(i + 1);
  }
}

std::vector<at::Tensor> draw(const std::vector<at::Device>& devices) {
  std::vector<at::Tensor> numbers;
  for (const at::Device& device : devices) {
    numbers.push_back(at::rand({5}, at::globalContext().defaultGenerator(device)));
  }
  return numbers;
}

}  // namespace

TEST_SUITE("ddp/random_streams") {
  TEST_CASE("the generator of each device goes on where it was") {
    const std::vector<at::Device> devices{at::kCPU, gpu(1), gpu(0)};
    seed_apart(devices);
    draw(devices);
    std::map<std::string, at::Tensor> saved;
    const std::vector<at::Tensor> states = random_states(devices);
    for (std::size_t place = 0; place < states.size(); ++place) {
      saved[random_name(place, 3)] = states[place].clone();
    }
    CHECK(saved.contains("cpu/3"));
    CHECK(saved.contains("gpu0/3"));
    CHECK(saved.contains("gpu1/3"));
    const std::vector<at::Tensor> next = draw(devices);
    CHECK(!at::equal(next[1], next[2]));
    draw(devices);
    REQUIRE(restore_random_states(saved, 3, devices).has_value());
    const std::vector<at::Tensor> again = draw(devices);
    for (std::size_t i = 0; i < next.size(); ++i) CHECK(at::equal(again[i], next[i]));
  }

  TEST_CASE("what was not saved stays as it is, and other bytes are refused") {
    const std::vector<at::Device> devices{at::kCPU, gpu(0)};
    seed_apart(devices);
    std::map<std::string, at::Tensor> saved{{"cpu/0", random_states(devices)[0].clone()}};
    const std::vector<at::Tensor> first = draw(devices);
    REQUIRE(restore_random_states(saved, 0, devices).has_value());
    const std::vector<at::Tensor> second = draw(devices);
    CHECK(at::equal(first[0], second[0]));
    CHECK(!at::equal(first[1], second[1]));
    saved["gpu0/0"] = at::zeros({3}, at::kByte);
    CHECK_FALSE(restore_random_states(saved, 0, devices).has_value());
  }

  TEST_CASE("a stream of a rank's own reaches every generator") {
    const std::vector<at::Device> devices{at::kCPU, gpu(0), gpu(1)};
    start_random_stream(1, 2, 3);
    const std::vector<at::Tensor> first = draw(devices);
    start_random_stream(1, 2, 3);
    const std::vector<at::Tensor> again = draw(devices);
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(at::equal(again[i], first[i]));
  }

  TEST_CASE("a module's devices are the CPU and those of its parameters") {
    struct Parts : torch::nn::Module {
      Parts() {
        for (int number : {1, 0, 1}) {
          at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
              c10::DispatchKeySet({c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA}),
              caffe2::TypeMeta::Make<float>(), gpu(number));
          register_parameter("weight" + std::to_string(parameters().size()), tensor);
        }
      }
    };
    CHECK(generator_devices(Parts()) == std::vector<at::Device>{at::kCPU, gpu(1), gpu(0)});
    CHECK(generator_devices(torch::nn::Module()) == std::vector<at::Device>{at::kCPU});
  }
}
