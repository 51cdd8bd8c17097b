# Writes OUT, a C++ source with the text of PTX, whose .version becomes VERSION (kept beside it as PTX.old, for ptxas).
# Without PTX: a source that says there is none.
set(text "nullptr")
set(array "")
if(PTX)
  file(READ ${PTX} ptx)
  string(REGEX REPLACE "\n\\.version [0-9.]+" "\n.version ${VERSION}" ptx "${ptx}")
  file(WRITE ${PTX}.old "${ptx}")
  file(READ ${PTX}.old hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  set(array "const unsigned char kImage[] = {${bytes}0};\n")
  set(text "reinterpret_cast<const char*>(kImage)")
endif()
file(WRITE ${OUT} "// Written by cmake/EmbedPtx.cmake.
#include \"gpu/kernels/image.h\"

namespace tcpx::gpu {
namespace {
${array}
}  // namespace

const char* kernel_image() {
  return ${text};
}

}  // namespace tcpx::gpu
")
