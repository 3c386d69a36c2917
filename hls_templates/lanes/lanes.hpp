// Kernel `lanes`: y = A·x with A in SELL-C-sigma, sixteen rows and sixteen products a cycle.
//
//   x ──────┬─► read_panels ─┬─► x_words ─────────────────────────────────► gather_x
//   matrix ─┘                ├─► panel_sizes ──────────────────────────────► gather_x
//                            ├─► panel_words ─► unpack
//                            ├─► words ─► unpack ─┬─► index_words ─────────► gather_x
//                            │                    ├─► value_words ─────────► multiply
//                            │                    └─► address_words ───────► add_y
//                            ├─► panel_chunks ─────────────────────────────► add_y
//                            └─► merge_words ──────────────────────────────► add_y
//
//   gather_x ─► operands ─► multiply ─► products ─► accumulate ─► piece_sums ─► add_y
//
//   add_y ─► y_words ─► write_y ─► y
//
// Columns come in panels, whose x is held on the chip. A panel is a header word and its chunks; the
// header of the next panel stands behind it. A chunk is depth pieces of a row for each lane: first
// their addresses in y, then slot-columns of depth accesses, so that a row returns only after depth
// cycles. Two accesses are two words of values and one word of their column indices. Bit 15 of lane
// 0's index marks the last slot-column: there a sum leaves as it is computed, and is added to y.
//
// Rows that are too long for one lane have whole words of y behind the real ones; the end of the
// stream lists the rows that these are added to.
#pragma once

#include "constants.hpp"
#include "memory.hpp"
#include "reduce.hpp"
#include "words.hpp"

namespace spmv {

// Derived from kDepth, kPanel and kYRoom of constants.hpp.
constexpr unsigned kHalves = 2 * kLanes;                       // 16-bit numbers in a word
constexpr unsigned kAddressWords = kDepth * kLanes / kHalves;  // of a chunk
constexpr unsigned kPairs = kDepth / 2;                        // of accesses in a slot-column
constexpr unsigned kWordsPerPair = 3;                          // two of values, one of indices
constexpr unsigned kPanelWords = kPanel / kLanes;
constexpr unsigned kYAddresses = kYRoom / kLanes;

static_assert(kDepth == 8 || kDepth == 16, "depth is 8 or 16");
static_assert(kDepth >= kReuseDistance, "a partial sum would return too early");
static_assert(kAddressWords * kHalves == kDepth * kLanes, "addresses of a chunk are whole words");
static_assert(kPairs * 2 == kDepth, "a slot-column is whole pairs of accesses");
static_assert(kPanelWords * kLanes == kPanel, "a panel is whole words");
static_assert(kYAddresses * kLanes == kYRoom, "the room for y is whole words");

// A column index, and a flag in that of lane 0: the access is in the last slot-column of its chunk.
constexpr std::uint32_t kLastInChunk = 1u << 15;
constexpr std::uint32_t kColumnMask = kLastInChunk - 1;
constexpr unsigned kNoAddress = 0xFFFF;        // of a piece without entries
constexpr std::uint32_t kNoRow = 0xFFFFFFFFu;  // of a word of y that belongs to no long row
constexpr unsigned kMergeRoom = 256;           // words of y for long rows, at most

static_assert(kPanel <= kLastInChunk, "a column index has 15 bits");
static_assert(kYAddresses <= kNoAddress,
              "an address of y has 16 bits, and one value of them means none");
static_assert(kYAddresses > kMergeRoom, "there is room for rows beside the words of long rows");

// x is held once for every two lanes, for a memory has two ports. Two banks of pairs of floats,
// with two ports each, take half a word of x a cycle.
typedef hls::vector<float, 2> pair_t;
constexpr unsigned kCopies = kLanes / 2;
constexpr unsigned kXBanks = 2;
constexpr unsigned kXPairs = kPanel / 2 / kXBanks;  // in a bank
constexpr unsigned kPairsAtOnce = 2 * kXBanks;
constexpr unsigned kFillsPerWord = kLanes / (2 * kPairsAtOnce);

static_assert(kXPairs * kXBanks * 2 == kPanel, "the banks hold the panel");
static_assert(kFillsPerWord * kPairsAtOnce * 2 == kLanes, "a word of x is whole fills");

struct PanelSize {
  unsigned num_x_words;
  unsigned num_accesses;
};

struct Operands {
  float x[kLanes];
  bool is_last;  // in the last slot-column of its chunk
};

struct Products {
  float values[kLanes];
  bool is_last;
};

// Depths: what a process may run ahead of the next one. A pipeline that waits for input may keep
// results that it has computed already (pipeline style stp). So values must hold the accesses whose
// operands are still inside gather_x; addresses, and the sizes of panels, those whose sums are
// still inside gather_x, multiply and accumulate.
constexpr unsigned kGatherLatency = 16;
constexpr unsigned kSumLatency = 64;
constexpr unsigned kWordDepth = 32;      // what a LUT holds as a shift register
constexpr unsigned kAddressDepth = 128;  // of words; block RAM has as much for so wide a word
constexpr unsigned kPanelDepth = 32;

static_assert(kWordDepth >= kGatherLatency + 2, "operands would never leave gather_x");
static_assert(kAddressDepth * 2 > kSumLatency, "sums would never leave accumulate");
static_assert(kPanelDepth * kDepth > kSumLatency, "small panels would never leave accumulate");

// One of the 32 numbers of 16 bits in a word.
inline unsigned half_of(const word_t& word, unsigned number) {
#pragma HLS inline
  return word[number / 2] >> (16 * (number % 2)) & 0xFFFFu;
}

// All that a unit reads: for each panel first its x, for nothing can be multiplied before it is on
// the chip, then its chunks. The header behind them comes in the same burst: the next panel does
// not wait for a latency of the memory to learn its own size. One process, so that both may also
// come through one port (link.cfg decides).
inline void read_panels(const floats_t* x, const word_t* matrix, hls::stream<floats_t>& x_words,
                        hls::stream<word_t>& words, hls::stream<unsigned>& panel_words,
                        hls::stream<PanelSize>& panel_sizes, hls::stream<unsigned>& panel_chunks,
                        hls::stream<word_t>& merge_words, unsigned num_words, unsigned num_panels) {
  word_t header;
  unsigned place = 0;
  if (num_panels > 0) {
    header = load(matrix, 0);
    place = 1;
  }
ReadPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const unsigned num_panel_words = header[0];
    const unsigned first_x_word = header[1];
    const PanelSize size = {header[2], header[4]};
    panel_words.write(num_panel_words);
    panel_sizes.write(size);
    panel_chunks.write(header[3]);
  ReadX:
    for (unsigned i = 0; i < size.num_x_words; ++i) {
#pragma HLS pipeline II = 1
      x_words.write(load(x, first_x_word + i));
    }
    drain();
    const unsigned num_read = panel + 1 < num_panels ? num_panel_words + 1 : num_panel_words;
  ReadChunks:
    for (unsigned i = 0; i < num_read; ++i) {
#pragma HLS pipeline II = 1
      const word_t word = load(matrix, place + i);
      if (i == num_panel_words) {
        header = word;
      } else {
        words.write(word);
      }
    }
    drain();
    place += num_read;
  }
ReadMerged:
  for (unsigned i = place; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    merge_words.write(load(matrix, i));
  }
}

// Tells addresses, values and indices of the chunks from one another. A loop for each panel: one
// for all would wait for words that come only behind the next panel's x, and keep the last indices
// of this panel meanwhile, without which gather_x never takes that x.
inline void unpack(hls::stream<word_t>& words, hls::stream<unsigned>& panel_words,
                   hls::stream<word_t>& address_words, hls::stream<word_t>& value_words,
                   hls::stream<word_t>& index_words, unsigned num_panels) {
UnpackPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const unsigned num_words = panel_words.read();
    bool is_address = true;
    unsigned place = 0;  // address word of its chunk, or pair of its slot-column
    unsigned part = 0;   // word of its pair
  Unpack:
    for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
      const word_t word = words.read();
      if (is_address) {
        address_words.write(word);
        is_address = place != kAddressWords - 1;
        place = is_address ? place + 1 : 0;
      } else if (part < kWordsPerPair - 1) {
        value_words.write(word);
        ++part;
      } else {
        index_words.write(word);
        const bool ends_column = place == kPairs - 1;
        is_address = ends_column && (word[0] & kLastInChunk) != 0;
        place = ends_column ? 0 : place + 1;
        part = 0;
      }
    }
    drain();
  }
}

// Serves sixteen elements of x a cycle, one to each lane, from copies of the panel on chip.
inline void gather_x(hls::stream<floats_t>& x_words, hls::stream<word_t>& index_words,
                     hls::stream<PanelSize>& panel_sizes, hls::stream<Operands>& operands,
                     unsigned num_panels) {
  pair_t x_copies[kCopies][kXBanks][kXPairs];
#pragma HLS array_partition variable = x_copies dim = 1 complete
#pragma HLS array_partition variable = x_copies dim = 2 complete
#pragma HLS bind_storage variable = x_copies type = ram_t2p impl = uram
GatherPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const PanelSize size = panel_sizes.read();
    SPMV_REQUIRE(size.num_x_words <= kPanelWords, "a panel is wider than its room on chip");
    floats_t x_word;
  FillX:
    for (unsigned i = 0; i < kFillsPerWord * size.num_x_words; ++i) {
#pragma HLS pipeline II = 1
      tick();
      if (i % kFillsPerWord == 0) x_word = x_words.read();
    FillPairs:
      for (unsigned k = 0; k < kPairsAtOnce; ++k) {
#pragma HLS unroll
        const unsigned lane = 2 * (i % kFillsPerWord * kPairsAtOnce + k);
        pair_t pair;
        pair[0] = x_word[lane];
        pair[1] = x_word[lane + 1];
      FillCopies:
        for (unsigned copy = 0; copy < kCopies; ++copy) {
#pragma HLS unroll
          x_copies[copy][k % kXBanks][i * (kPairsAtOnce / kXBanks) + k / kXBanks] = pair;
        }
      }
    }
    drain();

    word_t index_word;
  GatherX:
    for (unsigned i = 0; i < size.num_accesses; ++i) {
#pragma HLS pipeline II = 1
      const unsigned access = i % 2;  // of its pair
      if (access == 0) index_word = index_words.read();
      Operands operand;
    GatherLanes:
      for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
        const unsigned column = half_of(index_word, access * kLanes + lane) & kColumnMask;
        SPMV_REQUIRE(column / kLanes < size.num_x_words, "a slot lies beyond the end of its panel");
        // Both lanes of a copy read both banks: an address for each port.
        const unsigned address = column / 2 / kXBanks;
        const pair_t even = x_copies[lane / 2][0][address];
        const pair_t odd = x_copies[lane / 2][1][address];
        const pair_t pair = column / 2 % kXBanks == 0 ? even : odd;
        operand.x[lane] = pair[column % 2];
      }
      operand.is_last = (half_of(index_word, access * kLanes) & kLastInChunk) != 0;
      operands.write(operand);
    }
    drain();
  }
}

// Sixteen products a cycle.
inline void multiply(hls::stream<word_t>& value_words, hls::stream<Operands>& operands,
                     hls::stream<Products>& products, unsigned num_accesses) {
  result_latency(kAdderLatency);
Multiply:
  for (unsigned i = 0; i < num_accesses; ++i) {
#pragma HLS pipeline II = 1
    const Operands operand = operands.read();
    const word_t word = value_words.read();
    Products product;
  MultiplyLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      product.values[lane] = product_of(word[lane], operand.x[lane]);
    }
    product.is_last = operand.is_last;
    products.write(product);
  }
}

// Adds the products of a piece. Sums start anew in the first slot-column of a chunk and leave in
// the last one as they are computed: nothing is ever drained.
inline void accumulate(hls::stream<Products>& products, hls::stream<floats_t>& piece_sums,
                       unsigned num_accesses) {
  float partials[kDepth][kLanes];
#pragma HLS array_partition variable = partials dim = 2 complete
  SPMV_ACCUMULATOR(partials, kDepth, kReuseDistance);
  result_latency(kAdderLatency);
  unsigned place = 0;
  bool is_first = true;
Accumulate:
  for (unsigned i = 0; i < num_accesses; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = partials inter RAW distance = 8 true
    const Products product = products.read();
    if (!is_first) SPMV_READS(partials, place);
    SPMV_WRITES(partials, place);
    floats_t sums;
  AddProducts:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      const float before = is_first ? 0.0f : partials[place][lane];
      const float sum = before + product.values[lane];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
      partials[place][lane] = sum;
      sums[lane] = sum;
    }
    if (product.is_last) piece_sums.write(sums);
    const bool ends_column = place == kDepth - 1;
    is_first = ends_column ? product.is_last : is_first;
    place = ends_column ? 0 : place + 1;
  }
}

// Turns a word so that what stood `places` lanes on stands in lane 0: four steps of two-way
// choices.
inline floats_t turned(const floats_t& word, unsigned places) {
#pragma HLS inline
  floats_t now = word;
TurnSteps:
  for (unsigned step = 1; step < kLanes; step *= 2) {
#pragma HLS unroll
    floats_t next;
  TurnLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      next[lane] = (places & step) != 0 ? now[(lane + step) % kLanes] : now[lane];
    }
    now = next;
  }
  return now;
}

// Adds the sums of pieces to y, which stays on the chip for all panels: a bank for each lane.
// Within a panel the host keeps pieces of the same element kReuseDistance apart; panels are loops
// of their own, which end before the next one starts.
//
// Word j of y stands at address j of all banks, turned by j lanes: rows of the same kind, which
// often recur after a few rows, are then no burden for one lane alone.
inline void add_y(hls::stream<floats_t>& piece_sums, hls::stream<word_t>& address_words,
                  hls::stream<unsigned>& panel_chunks, hls::stream<word_t>& merge_words,
                  hls::stream<floats_t>& y_words, unsigned num_panels, unsigned num_merged,
                  unsigned num_y_words) {
  float y_banks[kLanes][kYAddresses];
#pragma HLS array_partition variable = y_banks dim = 1 complete
#pragma HLS bind_storage variable = y_banks type = ram_s2p impl = bram
  float merged[kMergeRoom];
  SPMV_ACCUMULATOR(y_banks, kLanes * kYAddresses, kReuseDistance);
  result_latency(kReuseDistance);  // y is read, added to and written back
  SPMV_REQUIRE(num_merged <= kMergeRoom, "there are more words of long rows than room for them");
  SPMV_REQUIRE(num_y_words + num_merged <= kYAddresses, "y is longer than its room on chip");
ClearY:
  for (unsigned address = 0; address < num_y_words + num_merged; ++address) {
#pragma HLS pipeline II = 1
    tick();
  ClearLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      y_banks[lane][address] = 0.0f;
    }
  }
  drain();

AddPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const unsigned num_positions = panel_chunks.read() * kDepth;
    word_t address_word;
  AddPieces:
    for (unsigned i = 0; i < num_positions; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = y_banks inter RAW distance = 8 true
      if (i % 2 == 0) address_word = address_words.read();
      const floats_t sums = piece_sums.read();
    AddLanes:
      for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
        const unsigned address = half_of(address_word, i % 2 * kLanes + lane);
        if (address != kNoAddress) {
          SPMV_REQUIRE(address < num_y_words + num_merged, "a piece lies beyond the end of y");
          SPMV_READS(y_banks, lane * kYAddresses + address);
          SPMV_WRITES(y_banks, lane * kYAddresses + address);
          const float sum = y_banks[lane][address] + sums[lane];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
          y_banks[lane][address] = sum;
        }
      }
    }
    drain();
  }

SumMerged:
  for (unsigned i = 0; i < num_merged; ++i) {
#pragma HLS pipeline II = 1
    tick();
    float terms[kLanes];
#pragma HLS array_partition variable = terms complete
  ReadLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      terms[lane] = y_banks[lane][num_y_words + i];
    }
    merged[i] = tree_sum<kLanes>(terms);
  }
  drain();

  word_t merge_word;
AddMerged:
  for (unsigned i = 0; i < num_merged; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = y_banks inter RAW distance = 8 true
    tick();
    if (i % kLanes == 0) merge_word = merge_words.read();
    const std::uint32_t row = merge_word[i % kLanes];
    const unsigned address = row / kLanes;
    SPMV_REQUIRE(row == kNoRow || address < num_y_words, "a long row lies beyond the end of y");
  AddRow:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      if (row != kNoRow && (row + address) % kLanes == lane) {
        SPMV_READS(y_banks, lane * kYAddresses + address);
        SPMV_WRITES(y_banks, lane * kYAddresses + address);
        const float sum = y_banks[lane][address] + merged[i];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
        y_banks[lane][address] = sum;
      }
    }
  }
  drain();

SendY:
  for (unsigned address = 0; address < num_y_words; ++address) {
#pragma HLS pipeline II = 1
    floats_t word;
  SendLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      word[lane] = y_banks[lane][address];
    }
    y_words.write(turned(word, address % kLanes));
  }
}

// One product. All processes run side by side.
inline void product(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                    unsigned num_panels, unsigned num_accesses, unsigned num_merged,
                    unsigned num_y_words) {
  SPMV_DATAFLOW(lanes)
  SPMV_STREAM_SRL(floats_t, x_words, kWordDepth);
  SPMV_STREAM_SRL(word_t, words, kWordDepth);
  SPMV_STREAM_SRL(unsigned, panel_words, kPanelDepth);
  SPMV_STREAM_SRL(PanelSize, panel_sizes, kPanelDepth);
  SPMV_STREAM_SRL(unsigned, panel_chunks, kPanelDepth);
  SPMV_STREAM_SRL(word_t, merge_words, kWordDepth);
  SPMV_STREAM(word_t, address_words, kAddressDepth);
  SPMV_STREAM_SRL(word_t, value_words, kWordDepth);
  SPMV_STREAM_SRL(word_t, index_words, kWordDepth);
  SPMV_STREAM_SRL(Operands, operands, kWordDepth);
  SPMV_STREAM_SRL(Products, products, kWordDepth);
  SPMV_STREAM_SRL(floats_t, piece_sums, kWordDepth);
  SPMV_STREAM_SRL(floats_t, y_words, kWordDepth);

  SPMV_PROCESS(read_panels, x, matrix, x_words, words, panel_words, panel_sizes, panel_chunks,
               merge_words, num_words, num_panels);
  SPMV_PROCESS(unpack, words, panel_words, address_words, value_words, index_words, num_panels);
  SPMV_PROCESS(gather_x, x_words, index_words, panel_sizes, operands, num_panels);
  SPMV_PROCESS(multiply, value_words, operands, products, num_accesses);
  SPMV_PROCESS(accumulate, products, piece_sums, num_accesses);
  SPMV_PROCESS(add_y, piece_sums, address_words, panel_chunks, merge_words, y_words, num_panels,
               num_merged, num_y_words);
  SPMV_PROCESS(write_y, y_words, y, num_y_words);
  SPMV_JOIN();
}

// The product, `iterations` times: launch overhead then leaves a measurement.
inline void lanes(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                  unsigned num_panels, unsigned num_accesses, unsigned num_merged,
                  unsigned num_y_words, unsigned iterations) {
Iterate:
  for (unsigned i = 0; i < iterations; ++i) {
    product(matrix, x, y, num_words, num_panels, num_accesses, num_merged, num_y_words);
  }
}

}  // namespace spmv
