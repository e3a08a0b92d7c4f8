# Spack's recipe of Starling. Put this folder as packages/starling into a repository of recipes
# ("spack repo create"), go to a folder with the tarball of "make dist", and
#     spack install --no-checksum starling
import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Starling(AutotoolsPackage, CudaPackage):
    """Starling trains neural networks on CPU cores, GPUs and clusters. Every layer becomes small
    tasks of StarPU, which runs each of them on any free core or GPU."""

    # There is no public archive yet.
    manual_download = True
    url = f"file://{os.getcwd()}/starling-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("mpi", default=True, description="Distributed training")
    variant("onednn", default=True, description="Fast products and convolutions by oneDNN")
    variant("onnx", default=True, description="ONNX files")
    variant("cairo", default=True, description="PNG output of starling-plot and starling-trace")
    variant("png", default=True, description="PNG pictures as inputs")
    variant("jpeg", default=True, description="JPEG pictures as inputs")
    variant("hdf5", default=True, description="HDF5 files as data")
    variant("fxt", default=True, description="Traces, for starling-trace")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("pkgconfig", type="build")

    depends_on("starpu@1.4:")
    depends_on("starpu+mpi", when="+mpi")
    depends_on("starpu+fxt", when="+fxt")
    depends_on("starpu+cuda", when="+cuda")
    depends_on("hwloc")
    depends_on("jansson")
    depends_on("openblas")
    depends_on("openssl")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("mpi", when="+mpi")
    depends_on("onednn", when="+onednn")
    depends_on("protobuf-c", when="+onnx")
    depends_on("cairo+png+svg", when="+cairo")
    depends_on("libpng@1.6:", when="+png")
    depends_on("jpeg", when="+jpeg")
    depends_on("hdf5@1.10:~mpi", when="+hdf5")
    depends_on("cudnn", when="+cuda")
    depends_on("cmocka", type="test")

    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs' compute capabilities")

    def configure_args(self):
        args = ["--enable-silent-rules"]
        for option in ("mpi", "onednn", "onnx", "cairo", "png", "jpeg", "hdf5"):
            args += self.with_or_without(option)
        if self.spec.satisfies("+cuda"):
            args.append(f"--with-cuda={self.spec['cuda'].prefix}")
            args.append("--with-cuda-arch=" + ";".join(self.spec.variants["cuda_arch"].value))
        else:
            args.append("--without-cuda")
        return args
