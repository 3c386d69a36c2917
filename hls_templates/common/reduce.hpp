// Two reducers in turn: the accumulation of both kernels.
//
// A *strip* is a group of rows whose sums arrive together: a block row of Blocked ELL, a slice of
// sliced ELL. Its sums come as words of kRows rows; kGroups words make one round over the strip,
// so an accumulator is touched again only kGroups words later. Where that is sooner than the
// floating adder is done, kPartials rounds have accumulators of their own, which are added when
// the strip ends.
//
//                 ┌─► even_sums ─► reduce ─► even_rows ─┐
//   sums ─► deal ─┤                                     ├─► collect ─► y_words
//                 └─► odd_sums ──► reduce ─► odd_rows ──┘
//
// While one reducer drains its strip, the other already takes the next one: short strips do not
// stop the stream of values.
#pragma once

#include "words.hpp"

namespace spmv {

// Cycles after which a sum may be touched again: the adder's latency (bound below) and the read and
// write of the accumulator memory.
constexpr unsigned kReuseDistance = 8;
static_assert(kReuseDistance >= kAdderLatency + 2, "read, add, write");

constexpr unsigned partials_for(unsigned num_groups) {
  return num_groups >= kReuseDistance ? 1 : kReuseDistance / num_groups;
}

// One word of row sums on its way to a reducer.
template <unsigned kRows>
struct Sums {
  float rows[kRows];
  bool is_last;   // the strip ends with this word
  bool is_empty;  // the strip has no words; this one stands for all its rows
};

template <unsigned kRows>
struct Rows {
  float rows[kRows];
};

// Number of strips that the even (0) or the odd (1) reducer gets.
constexpr unsigned strips_of(unsigned reducer, unsigned num_strips) {
  return (num_strips + 1 - reducer) / 2;
}

// Adds the words of every second strip. One loop for all its strips, so that the pipeline is
// never flushed: an iteration adds a word, waits, or drains one group of finished rows.
template <unsigned kRows, unsigned kGroups>
inline void reduce(hls::stream<Sums<kRows>>& sums, hls::stream<Rows<kRows>>& finished,
                   unsigned num_strips) {
  constexpr unsigned kPartials = partials_for(kGroups);
  static_assert(kPartials * kGroups >= kReuseDistance, "an accumulator would return too early");
  enum State { kAdd, kWait, kDrain };

  float partials[kPartials][kGroups][kRows];
#pragma HLS array_partition variable = partials dim = 1 complete
#pragma HLS array_partition variable = partials dim = 3 complete
  SPMV_ACCUMULATOR(partials, kPartials * kGroups, kReuseDistance);
  result_latency(log2_of(kPartials) * kAdderLatency);

  State state = kAdd;
  unsigned partial = 0;
  unsigned group = 0;
  unsigned waited = 0;
  bool is_first_round = true;  // what the accumulators hold belongs to an older strip
  unsigned num_partials = 0;   // rounds that the strip has touched
  unsigned strip = 0;
Reduce:
  while (strip < num_strips) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = partials inter RAW distance = 8 true
    tick();
    if (state == kAdd) {
      const Sums<kRows> word = sums.read();
      if (!is_first_round) SPMV_READS(partials, partial * kGroups + group);
      SPMV_WRITES(partials, partial * kGroups + group);
    AddRows:
      for (unsigned r = 0; r < kRows; ++r) {
#pragma HLS unroll
        const float before = is_first_round ? 0.0f : partials[partial][group][r];
        const float sum = before + word.rows[r];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
        partials[partial][group][r] = sum;
      }
      const bool ends_round = group == kGroups - 1;
      if (word.is_last) {
        num_partials = word.is_empty ? 0 : is_first_round ? partial + 1 : kPartials;
        state = kPartials > 1 && !word.is_empty ? kWait : kDrain;
        group = 0;
        waited = 0;
      } else {
        group = ends_round ? 0 : group + 1;
        if (ends_round) {
          is_first_round = is_first_round && partial != kPartials - 1;
          partial = partial == kPartials - 1 ? 0 : partial + 1;
        }
      }
    } else if (state == kWait) {
      // With several partial sums the drain reads what was added just now.
      state = waited == kReuseDistance - 1 ? kDrain : kWait;
      ++waited;
    } else {
      Rows<kRows> out;
    DrainRows:
      for (unsigned r = 0; r < kRows; ++r) {
#pragma HLS unroll
        float terms[kPartials];
      DrainPartials:
        for (unsigned p = 0; p < kPartials; ++p) {
#pragma HLS unroll
          if (p < num_partials) SPMV_READS(partials, p * kGroups + group);
          terms[p] = p < num_partials ? partials[p][group][r] : 0.0f;
        }
        out.rows[r] = tree_sum<kPartials>(terms);
      }
      finished.write(out);
      if (group == kGroups - 1) {
        state = kAdd;
        group = 0;
        partial = 0;
        is_first_round = true;
        ++strip;
      } else {
        ++group;
      }
    }
  }
}

// Joins the finished rows of both reducers to words of y, strip by strip in turn.
template <unsigned kRows, unsigned kGroups>
inline void collect(hls::stream<Rows<kRows>>& even_rows, hls::stream<Rows<kRows>>& odd_rows,
                    hls::stream<floats_t>& y_words, unsigned num_strips) {
  constexpr unsigned kPartsPerWord = kLanes / kRows;
  static_assert(kPartsPerWord * kRows == kLanes, "rows of a word divide a word of y");
  const unsigned num_parts = num_strips * kGroups;
  const unsigned num_y_words = words_for(num_strips * kGroups * kRows);

  floats_t word;
  unsigned group = 0;
  bool is_odd = false;
  unsigned place = 0;
Collect:
  for (unsigned i = 0; i < num_y_words * kPartsPerWord; ++i) {
#pragma HLS pipeline II = 1
    tick();
    Rows<kRows> part;
    if (i >= num_parts) {  // the last word of y may be longer than the last strip
    ClearRows:
      for (unsigned r = 0; r < kRows; ++r) {
#pragma HLS unroll
        part.rows[r] = 0.0f;
      }
    } else if (is_odd) {
      part = odd_rows.read();
    } else {
      part = even_rows.read();
    }
  PlaceRows:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      if (lane / kRows == place) word[lane] = part.rows[lane % kRows];
    }
    if (place == kPartsPerWord - 1) y_words.write(word);
    place = place == kPartsPerWord - 1 ? 0 : place + 1;
    is_odd = group == kGroups - 1 ? !is_odd : is_odd;
    group = group == kGroups - 1 ? 0 : group + 1;
  }
}

}  // namespace spmv
