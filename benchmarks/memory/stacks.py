"""Stacks as PyTorch records them with C++ frames: allocator, operator, the user's modules, the interpreter, libc."""

from __future__ import annotations

Frame = tuple[str, str, int]
"""Name, file, line; as in a snapshot."""

SITE = "/opt/conda/lib/python3.12/site-packages/torch"
TRAIN, MODEL, DATA = "/home/me/project/train.py", "/home/me/project/models/transformer.py", "/home/me/project/data.py"

_GATHER = (("torch::unwind::unwind()", "??", 0), ("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0),
           ("torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp", 0))
_NATIVE = "c10::cuda::CUDACachingAllocator::Native::"
_MALLOC = (*_GATHER,
           (f"{_NATIVE}DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)", "CUDACachingAllocator.cpp", 0),
           (f"{_NATIVE}NativeCachingAllocator::malloc(void**, signed char, unsigned long, CUstream_st*)", "", 0),
           (f"{_NATIVE}NativeCachingAllocator::allocate(unsigned long)", "", 0),
           ("at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*, c10::DispatchKeySet, c10::ScalarType)",
            "??", 0), ("at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)", "??", 0))
_FREE = (*_GATHER,
         (f"{_NATIVE}DeviceCachingAllocator::free({_NATIVE}Block*)", "CUDACachingAllocator.cpp", 0),
         ("c10::intrusive_ptr<c10::StorageImpl>::reset_()", "", 0),
         ("c10::TensorImpl::~TensorImpl() [clone .localalias]", "TensorImpl.cpp", 0))
_FROM_PYTHON = (("THPVariable_clear(THPVariable*)", "python_variable.cpp", 0),
                ("THPVariable_dealloc(_object*)", "python_variable.cpp", 0))
_EVAL, _METHOD = ("_PyEval_EvalFrameDefault", "??", 0), ("PyMethod_New", "??", 0)
_CALLS = (_EVAL, _METHOD, ("_call_impl", f"{SITE}/nn/modules/module.py", 1790), _EVAL, _METHOD,
          ("_wrapped_call_impl", f"{SITE}/nn/modules/module.py", 1779), _EVAL, ("_PyObject_MakeTpCall", "??", 0))
_BOTTOM = (_EVAL, ("PyEval_EvalCode", "??", 0), ("_PyRun_SimpleFileObject", "??", 0), ("Py_RunMain", "??", 0),
           ("Py_BytesMain", "??", 0), ("__libc_start_main", "??", 0), ("_start", "??", 0))
_ENGINE = (("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", "??", 0),
           ("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", "??", 0),
           ("torch::autograd::Engine::thread_init(int, std::shared_ptr<ReadyQueue> const&, bool)", "??", 0),
           ("torch::autograd::python::PythonEngine::thread_init(int, bool)", "??", 0),
           ("std::error_code::default_error_condition() const", "??", 0),
           ("start_thread", "./nptl/pthread_create.c", 447),
           ("__clone3", "./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 78))


class Stacks:
    """Different stacks and the different frames that they are made of."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.stacks: list[tuple[int, ...]] = [()]
        """The numbers of each one's frames, innermost first; number 0 has none."""
        self._frame: dict[Frame, int] = {}
        self._stack: dict[tuple[int, ...], int] = {(): 0}

    def add(self, *frames: Frame) -> int:
        """The number of this stack."""
        numbers = tuple(self._frame.setdefault(f, len(self._frame)) for f in frames)
        self.frames.extend(list(self._frame)[len(self.frames):])
        number = self._stack.setdefault(numbers, len(self.stacks))
        if number == len(self.stacks):
            self.stacks.append(numbers)
        return number

    def forward(self, op: str, path: tuple[tuple[str, int], ...], loop: tuple[str, int]) -> tuple[int, int]:
        """The stacks of an operator's result in the forward pass and of its end: (alloc, free).

        path: the modules' methods and lines, innermost first. loop: the function of train.py that calls, and its line.
        """
        python: list[Frame] = []
        for method, line in path:
            python += [(method, MODEL, line), *_CALLS]
        python += [(loop[0], TRAIN, loop[1]), _EVAL, _METHOD, ("<module>", TRAIN, 412), *_BOTTOM]
        return self.add(*_MALLOC, *_operator(op), *python), self.add(*_FREE, *_FROM_PYTHON, *python)

    def backward(self, op: str) -> tuple[int, int]:
        """Those of an operator that autograd's thread runs: no Python is on them."""
        node = (f"torch::autograd::generated::{op.title().replace('_', '')}Backward0::apply("
                "std::vector<at::Tensor>&&)", "??", 0)
        saved = (f"torch::autograd::generated::{op.title().replace('_', '')}Backward0::release_variables()", "??", 0)
        return self.add(*_MALLOC, *_operator(op + "_backward"), node, *_ENGINE), self.add(*_FREE, saved, *_ENGINE)

    def python(self, op: str, *path: tuple[str, str, int]) -> tuple[int, int]:
        """Those of an operator that any Python code calls, innermost first."""
        python = [frame for place in path for frame in (place, _EVAL, _METHOD)]
        python += [("<module>", TRAIN, 412), *_BOTTOM]
        return self.add(*_MALLOC, *_operator(op), *python), self.add(*_FREE, *_FROM_PYTHON, *python)


def _operator(op: str) -> tuple[Frame, ...]:
    """What is on the stack between an operator's binding to Python and its memory."""
    return ((f"at::native::structured_{op}_out_cuda::set_output_raw_strided(long, c10::ArrayRef<long>)", "??", 0),
            (f"at::(anonymous namespace)::wrapper_CUDA_{op}(at::Tensor const&, at::Tensor const&)",
             "RegisterCUDA_0.cpp", 0),
            (f"at::_ops::{op}::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)", "??", 0),
            (f"torch::autograd::VariableType::(anonymous namespace)::{op}(c10::DispatchKeySet, at::Tensor const&)",
             "VariableType_0.cpp", 0),
            (f"at::_ops::{op}::call(at::Tensor const&, at::Tensor const&)", "??", 0),
            (f"torch::autograd::THPVariable_{op}(_object*, _object*, _object*)", "python_torch_functions_0.cpp", 0))
