/* --bench: latency and throughput on random inputs. */
#ifndef SL_TOOLS_PREDICT_BENCH_H
#define SL_TOOLS_PREDICT_BENCH_H

#include "tools/predict/engine.h"

struct bench_options {
  int clients;
  int64_t batch;
  double seconds;
  bool json;
};
int bench_run(struct engine *engine, const struct bench_options *options);

#endif
