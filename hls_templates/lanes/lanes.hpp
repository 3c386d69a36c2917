// Kernel `lanes`: y = A·x with A in SELL-C-sigma, sixteen rows and sixteen products a cycle.
//
//   x ──────┬─► read_panels ─┬─► panel_sizes ───► multiply
//   matrix ─┘                ├─► words ─────────► multiply
//                            ├─► panel_chunks ──► add_y
//                            └─► address_words ─► add_y
//
//   multiply ─► piece_sums ─► add_y ─► y
//
// Columns come in panels, whose x is held on the chip. A panel is a header word and its chunks; the
// header of the next panel stands behind it. A chunk is depth pieces of a row for each lane: first
// their addresses in y, then slot-columns of depth accesses, so that a row returns only after depth
// accesses. Two accesses are a word of column indices and two words of their values. Bit 15 of lane
// 0's index marks the last slot-column: there a sum leaves as it is computed, and is added to y.
//
// Rows that are too long for one lane have whole words of y behind the real ones; the end of the
// stream lists the rows that these are added to.
//
// Three processes, and one stream for x, indices and values, for a unit shall be small: what limits
// how many fit is the logic that hands wide words on. A channel brings less than a word a cycle, so
// nothing is lost where one process takes them all.
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
constexpr unsigned kWordsPerPair = 3;                          // one of indices, two of values
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
constexpr unsigned kMergeRoom = 128;           // words of y for long rows, at most

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
  unsigned num_words;  // of indices and values
};

// y needs a sum for each lane only every second cycle (even a chunk one slot wide takes the channel
// sixteen), so eight adders and banks serve sixteen lanes, one half after the other.
constexpr unsigned kHalf = kLanes / 2;
constexpr unsigned kYWords = 2 * kYAddresses;  // in a bank

// Depths: what a process may run ahead of the next one. A pipeline that waits for input may keep
// results that it has computed already (pipeline style stp). So addresses, and the sizes of panels,
// must hold those of pieces whose sums are still inside multiply.
constexpr unsigned kMultiplyLatency = 24;  // reading x, a product and an addition
constexpr unsigned kWordDepth = 32;        // what a LUT holds as a shift register
constexpr unsigned kPanelDepth = 32;

static_assert(kWordDepth * 2 > kMultiplyLatency + kDepth, "sums would never leave multiply");
static_assert(kPanelDepth * kDepth > kMultiplyLatency, "small panels would never leave multiply");

// One of the 32 numbers of 16 bits in a word.
inline unsigned half_of(const word_t& word, unsigned number) {
#pragma HLS inline
  return word[number / 2] >> (16 * (number % 2)) & 0xFFFFu;
}

inline word_t bits_of(const floats_t& word) {
#pragma HLS inline
  word_t bits;
CopyBits:
  for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
    bits[lane] = bits_of(word[lane]);
  }
  return bits;
}

// Where a word of a panel belongs: addresses first, then pairs of accesses, chunk by chunk.
struct Place {
  bool is_address;
  unsigned number;  // address word of its chunk, or pair of its slot-column
  unsigned part;    // word of its pair
  bool ends_chunk;  // the slot-column is the last of its chunk, as its indices say
};

inline Place first_place() {
#pragma HLS inline
  const Place place = {true, 0, 0, false};
  return place;
}

inline Place next_place(const Place& now, bool is_flagged) {
#pragma HLS inline
  Place next = now;
  if (now.is_address) {
    next.is_address = now.number != kAddressWords - 1;
    next.number = next.is_address ? now.number + 1 : 0;
  } else if (now.part < kWordsPerPair - 1) {
    next.part = now.part + 1;
    next.ends_chunk = now.part == 0 ? is_flagged : now.ends_chunk;
  } else {
    const bool ends_column = now.number == kPairs - 1;
    next.is_address = ends_column && now.ends_chunk;
    next.number = ends_column ? 0 : now.number + 1;
    next.part = 0;
  }
  return next;
}

// All that a unit reads: for each panel first its x, for nothing can be multiplied before it is on
// the chip, then its chunks, told apart as they come. The header behind them comes in the same
// burst: the next panel does not wait for a latency of the memory to learn its own size. One
// process, so that x and matrix may also come through one port (link.cfg decides).
inline void read_panels(const floats_t* x, const word_t* matrix, hls::stream<word_t>& words,
                        hls::stream<word_t>& address_words, hls::stream<PanelSize>& panel_sizes,
                        hls::stream<unsigned>& panel_chunks, unsigned num_words,
                        unsigned num_panels) {
  word_t header;
  unsigned start = 0;
  if (num_panels > 0) {
    header = load(matrix, 0);
    start = 1;
  }
ReadPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const unsigned num_panel_words = header[0];
    const unsigned first_x_word = header[1];
    const PanelSize size = {header[2], header[4]};
    panel_sizes.write(size);
    panel_chunks.write(header[3]);
  ReadX:
    for (unsigned i = 0; i < size.num_x_words; ++i) {
#pragma HLS pipeline II = 1
      words.write(bits_of(load(x, first_x_word + i)));
    }
    drain();
    const unsigned num_read = panel + 1 < num_panels ? num_panel_words + 1 : num_panel_words;
    Place place = first_place();
  ReadChunks:
    for (unsigned i = 0; i < num_read; ++i) {
#pragma HLS pipeline II = 1
      const word_t word = load(matrix, start + i);
      if (i == num_panel_words) {
        header = word;
      } else if (place.is_address) {
        address_words.write(word);
      } else {
        words.write(word);
      }
      place = next_place(place, (word[0] & kLastInChunk) != 0);
    }
    drain();
    start += num_read;
  }
ReadMerged:
  for (unsigned i = start; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    address_words.write(load(matrix, i));
  }
}

// Sixteen products a cycle, with x from copies of the panel on chip, and the sums of their pieces.
// Sums start anew in the first slot-column of a chunk and leave in the last one as they are
// computed: nothing is ever drained.
inline void multiply(hls::stream<word_t>& words, hls::stream<PanelSize>& panel_sizes,
                     hls::stream<floats_t>& piece_sums, unsigned num_panels) {
  pair_t x_copies[kCopies][kXBanks][kXPairs];
#pragma HLS array_partition variable = x_copies dim = 1 complete
#pragma HLS array_partition variable = x_copies dim = 2 complete
#pragma HLS bind_storage variable = x_copies type = ram_t2p impl = uram
  float partials[kDepth][kLanes];
#pragma HLS array_partition variable = partials dim = 2 complete
  SPMV_ACCUMULATOR(partials, kDepth, kReuseDistance);
  result_latency(2 * kAdderLatency);
MultiplyPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const PanelSize size = panel_sizes.read();
    SPMV_REQUIRE(size.num_x_words <= kPanelWords, "a panel is wider than its room on chip");
    word_t x_word;
  FillX:
    for (unsigned i = 0; i < kFillsPerWord * size.num_x_words; ++i) {
#pragma HLS pipeline II = 1
      tick();
      if (i % kFillsPerWord == 0) x_word = words.read();
    FillPairs:
      for (unsigned k = 0; k < kPairsAtOnce; ++k) {
#pragma HLS unroll
        const unsigned lane = 2 * (i % kFillsPerWord * kPairsAtOnce + k);
        pair_t pair;
        pair[0] = float_of(x_word[lane]);
        pair[1] = float_of(x_word[lane + 1]);
      FillCopies:
        for (unsigned copy = 0; copy < kCopies; ++copy) {
#pragma HLS unroll
          x_copies[copy][k % kXBanks][i * (kPairsAtOnce / kXBanks) + k / kXBanks] = pair;
        }
      }
    }
    drain();

    word_t index_word;
    unsigned part = 0;   // word of its pair
    unsigned place = 0;  // access of its slot-column
    bool is_first = true;
  Multiply:
    for (unsigned i = 0; i < size.num_words; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = partials inter RAW distance = 8 true
      const word_t word = words.read();
      if (part == 0) {
        index_word = word;
        part = 1;
        continue;
      }
      const unsigned access = part - 1;  // of its pair
      part = part == kWordsPerPair - 1 ? 0 : part + 1;
      const bool is_last = (half_of(index_word, access * kLanes) & kLastInChunk) != 0;
      if (!is_first) SPMV_READS(partials, place);
      SPMV_WRITES(partials, place);
      floats_t sums;
    MultiplyLanes:
      for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
        const unsigned column = half_of(index_word, access * kLanes + lane) & kColumnMask;
        SPMV_REQUIRE(column / kLanes < size.num_x_words, "a slot lies beyond the end of its panel");
        // Both lanes of a copy read both banks: an address for each port.
        const unsigned address = column / 2 / kXBanks;
        const pair_t even = x_copies[lane / 2][0][address];
        const pair_t odd = x_copies[lane / 2][1][address];
        const pair_t pair = column / 2 % kXBanks == 0 ? even : odd;
        const float before = is_first ? 0.0f : partials[place][lane];
        const float sum = before + product_of(word[lane], pair[column % 2]);
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
        partials[place][lane] = sum;
        sums[lane] = sum;
      }
      if (is_last) piece_sums.write(sums);
      const bool ends_column = place == kDepth - 1;
      is_first = ends_column ? is_last : is_first;
      place = ends_column ? 0 : place + 1;
    }
    drain();
  }
}

// Turns a word so that what stood `places` lanes on stands in lane 0: two steps of four-way
// choices, each a LUT for a bit.
inline floats_t turned(const floats_t& word, unsigned places) {
#pragma HLS inline
  floats_t now = word;
TurnSteps:
  for (unsigned step = 1; step < kLanes; step *= 4) {
#pragma HLS unroll
    floats_t next;
  TurnLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      next[lane] = now[(lane + places / step % 4 * step) % kLanes];
    }
    now = next;
  }
  return now;
}

// Where the element at an address of a lane stands in its bank.
inline unsigned y_word(unsigned lane, unsigned address) {
#pragma HLS inline
  return 2 * address + lane / kHalf;
}

// Adds the sums of pieces to y, which stays on the chip for all panels, and writes it out. Within a
// panel the host keeps pieces of the same element kReuseDistance positions apart; panels are loops
// of their own, which end before the next one starts.
//
// Word j of y stands at address j of all lanes, turned by j lanes: rows of the same kind, which
// often recur after a few rows, are then no burden for one lane alone.
inline void add_y(hls::stream<floats_t>& piece_sums, hls::stream<word_t>& address_words,
                  hls::stream<unsigned>& panel_chunks, floats_t* y, unsigned num_panels,
                  unsigned num_merged, unsigned num_y_words) {
  float y_banks[kHalf][kYWords];
#pragma HLS array_partition variable = y_banks dim = 1 complete
#pragma HLS bind_storage variable = y_banks type = ram_s2p impl = bram
  float merged[kMergeRoom];
  SPMV_ACCUMULATOR(y_banks, kHalf * kYWords, kReuseDistance);
  SPMV_ACCUMULATOR(merged, kMergeRoom, kReuseDistance);
  result_latency(kReuseDistance);  // y is read, added to and written back
  SPMV_REQUIRE(num_merged <= kMergeRoom, "there are more words of long rows than room for them");
  SPMV_REQUIRE(num_y_words + num_merged <= kYAddresses, "y is longer than its room on chip");
ClearY:
  for (unsigned i = 0; i < 2 * (num_y_words + num_merged); ++i) {
#pragma HLS pipeline II = 1
    tick();
  ClearBanks:
    for (unsigned bank = 0; bank < kHalf; ++bank) {
#pragma HLS unroll
      y_banks[bank][i] = 0.0f;
    }
  }
  drain();

AddPanels:
  for (unsigned panel = 0; panel < num_panels; ++panel) {
    const unsigned num_positions = panel_chunks.read() * kDepth;
    word_t address_word;
    floats_t sums;
  AddPieces:
    for (unsigned i = 0; i < 2 * num_positions; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = y_banks inter RAW distance = 8 true
      tick();
      const unsigned half = i % 2;
      if (i % 4 == 0) address_word = address_words.read();
      if (half == 0) sums = piece_sums.read();
    AddBanks:
      for (unsigned bank = 0; bank < kHalf; ++bank) {
#pragma HLS unroll
        const unsigned lane = half * kHalf + bank;
        const unsigned address = half_of(address_word, i % 4 / 2 * kLanes + lane);
        if (address != kNoAddress) {
          SPMV_REQUIRE(address < num_y_words + num_merged, "a piece lies beyond the end of y");
          const unsigned word = y_word(lane, address);
          SPMV_READS(y_banks, bank * kYWords + word);
          SPMV_WRITES(y_banks, bank * kYWords + word);
          const float sum = y_banks[bank][word] + sums[lane];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
          y_banks[bank][word] = sum;
        }
      }
    }
    drain();
  }

  // One adder sums the lanes of all merged words in turn, then another adds them to their rows. The
  // host keeps words of the same row kReuseDistance apart here too.
  const unsigned num_turns = num_merged == 0 ? 0 : at_least(kReuseDistance, num_merged);
SumMerged:
  for (unsigned lane = 0; lane < kLanes; ++lane) {
  SumWords:
    for (unsigned i = 0; i < num_turns; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = merged inter RAW distance = 8 true
      tick();
      if (i < num_merged) {
        if (lane > 0) SPMV_READS(merged, i);
        SPMV_WRITES(merged, i);
        const float before = lane == 0 ? 0.0f : merged[i];
        const float sum = before + y_banks[lane % kHalf][y_word(lane, num_y_words + i)];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
        merged[i] = sum;
      }
    }
  }
  drain();

  word_t merge_word;
AddMerged:
  for (unsigned i = 0; i < num_merged; ++i) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = y_banks inter RAW distance = 8 true
    tick();
    if (i % kLanes == 0) merge_word = address_words.read();
    const std::uint32_t row = merge_word[i % kLanes];
    const unsigned address = row / kLanes;
    SPMV_REQUIRE(row == kNoRow || address < num_y_words, "a long row lies beyond the end of y");
    if (row != kNoRow) {
      const unsigned lane = (row + address) % kLanes;
      const unsigned word = y_word(lane, address);
      SPMV_READS(y_banks, lane % kHalf * kYWords + word);
      SPMV_WRITES(y_banks, lane % kHalf * kYWords + word);
      const float sum = y_banks[lane % kHalf][word] + merged[i];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = 6
      y_banks[lane % kHalf][word] = sum;
    }
  }
  drain();

  floats_t y_lanes;
WriteY:
  for (unsigned i = 0; i < 2 * num_y_words; ++i) {
#pragma HLS pipeline II = 1
    tick();
  WriteBanks:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      if (lane / kHalf == i % 2) y_lanes[lane] = y_banks[lane % kHalf][i];
    }
    if (i % 2 == 1) store(y, i / 2, turned(y_lanes, i / 2 % kLanes));
  }
}

// One product. All processes run side by side.
inline void product(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                    unsigned num_panels, unsigned num_merged, unsigned num_y_words) {
  SPMV_DATAFLOW(lanes)
  SPMV_STREAM_SRL(word_t, words, kWordDepth);
  SPMV_STREAM_SRL(word_t, address_words, kWordDepth);
  SPMV_STREAM_SRL(PanelSize, panel_sizes, kPanelDepth);
  SPMV_STREAM_SRL(unsigned, panel_chunks, kPanelDepth);
  SPMV_STREAM_SRL(floats_t, piece_sums, kWordDepth);

  SPMV_PROCESS(read_panels, x, matrix, words, address_words, panel_sizes, panel_chunks, num_words,
               num_panels);
  SPMV_PROCESS(multiply, words, panel_sizes, piece_sums, num_panels);
  SPMV_PROCESS(add_y, piece_sums, address_words, panel_chunks, y, num_panels, num_merged,
               num_y_words);
  SPMV_JOIN();
}

// The product, `iterations` times: launch overhead then leaves a measurement.
inline void lanes(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                  unsigned num_panels, unsigned num_merged, unsigned num_y_words,
                  unsigned iterations) {
Iterate:
  for (unsigned i = 0; i < iterations; ++i) {
    product(matrix, x, y, num_words, num_panels, num_merged, num_y_words);
  }
}

}  // namespace spmv
