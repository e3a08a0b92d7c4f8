#include "parallel/params/shard.h"

int sl__shard_count(const struct sl__ranks *ranks, int64_t elements, int64_t bound) {
  int owners = (ranks->size - sl__first_owner(ranks)) / sl__members(ranks);
  if (!ranks->size) return (int)((elements + bound - 1) / bound);
  return elements > bound ? (elements < owners ? (int)elements : owners) : 1;
}

int64_t sl__part_length(int64_t elements, int parts, int i) {
  return elements / parts + (i < elements % parts);
}

void sl__shards_cut(int block, int64_t elements, int parts, struct sl__shard *shards) {
  int64_t first = 0;
  for (int p = 0; p < parts; p++) {
    int64_t count = sl__part_length(elements, parts, p);
    shards[p] = (struct sl__shard){.block = block,
                                   .part = p,
                                   .is_cut = parts > 1,
                                   .first = first,
                                   .count = count,
                                   .lr_factor = 1,
                                   .decay_factor = 1,
                                   .run = {{count, true}},
                                   .run_count = 1,
                                   .parts = {1, {count}, {true}}};
    first += count;
  }
}

void sl__shard_free_state(struct sl__shard *shard) {
  for (int k = 0; k < SL__STATES; k++) {
    sl__tensor_free(shard->state[k]);
    shard->state[k] = NULL;
  }
}

void sl__shard_clear(struct sl__shard *shard) {
  sl__shard_free_state(shard);
  sl__tensor_free(shard->local_sum);
  sl__tensor_free(shard->sum);
  sl__tensor_free(shard->square);
  sl__tensor_free(shard->trust);
  sl__tensor_free(shard->trust_sum);
  shard->local_sum = shard->sum = shard->square = shard->trust = shard->trust_sum = NULL;
}
