#include <cudnn.h>
extern "C" size_t cudnnGetVersion() { return CUDNN_VERSION; }
