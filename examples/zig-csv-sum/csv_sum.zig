//! A tool in Zig: sums a column of a CSV file.
//!
//! The module is a WASI command. `describe` prints what it has; `call` reads one frame from standard input and
//! writes one to standard output (docs/authoring.md, "Frames, for other languages"). The exit code is 0 for a
//! result and for an error alike.

const std = @import("std");

const max_frame = 2 << 20; // the host's arguments are at most 1 MiB, serialized again
const max_file = 16 << 20; // a guest has 64 MiB

const declaration =
    \\{"v":1,"tools":[{"name":"csv_sum","description":"Sums a column of a CSV file whose first line names the columns.",
++
    \\"tier":"read_only","timeout_ms":5000,"parameters":{"type":"object","additionalProperties":false,"required":["path","column"],
++
    \\"properties":{"path":{"type":"string","description":"The file, such as /shared/costs.csv."},"column":{"type":"string","description":"The column's name."}}},
++
    \\"output_schema":{"type":"object","required":["sum","rows"],"properties":{"sum":{"type":"number"},"rows":{"type":"integer"}}},
++
    \\"roles":[{"argument":"path","role":{"path":"read"}}]}]}
;

/// What the host writes to standard input. Unknown fields are refused, as the host refuses ours.
const Frame = struct {
    v: u32,
    tool: []const u8,
    call_id: []const u8,
    arguments: std.json.Value,
    deadline_ms: u64,
};

const Arguments = struct { path: []const u8, column: []const u8 };

const Answer = union(enum) {
    sum: struct { value: f64, rows: usize },
    failure: struct { kind: []const u8, message: []const u8 },
};

pub fn main() !u8 {
    var arena = std.heap.ArenaAllocator.init(std.heap.wasm_allocator);
    const memory = arena.allocator();
    const words = try std.process.argsAlloc(memory);
    if (words.len > 1 and std.mem.eql(u8, words[1], "describe")) {
        try std.fs.File.stdout().writeAll(declaration ++ "\n");
        return 0;
    }
    if (words.len > 1 and std.mem.eql(u8, words[1], "call")) {
        const text = try std.fs.File.stdin().readToEndAlloc(memory, max_frame);
        const frame = std.json.parseFromSliceLeaky(Frame, memory, text, .{}) catch return misuse("the call frame cannot be read");
        if (frame.v != 1) return misuse("the call frame is not of version 1");
        const answer = if (std.mem.eql(u8, frame.tool, "csv_sum"))
            try call(memory, frame.arguments)
        else
            fail("not_found", "no such tool in this module");
        try write(memory, answer);
        return 0;
    }
    return misuse("write `describe` or `call`");
}

fn misuse(what: []const u8) u8 {
    std.debug.print("csv_sum: {s}\n", .{what});
    return 2;
}

fn fail(kind: []const u8, message: []const u8) Answer {
    return .{ .failure = .{ .kind = kind, .message = message } };
}

fn say(memory: std.mem.Allocator, kind: []const u8, comptime format: []const u8, values: anytype) !Answer {
    return fail(kind, try std.fmt.allocPrint(memory, format, values));
}

fn call(memory: std.mem.Allocator, given: std.json.Value) !Answer {
    const arguments = std.json.parseFromValueLeaky(Arguments, memory, given, .{}) catch
        return fail("invalid_arguments", "the arguments are `path` and `column`, both strings");
    const path = if (std.mem.startsWith(u8, arguments.path, "/"))
        arguments.path
    else
        try std.fmt.allocPrint(memory, "/shared/{s}", .{arguments.path});
    const file = std.fs.cwd().openFile(path, .{}) catch |reason| return switch (reason) {
        error.FileNotFound => say(memory, "not_found", "no such file `{s}`", .{path}),
        error.AccessDenied, error.PermissionDenied => say(memory, "denied", "not allowed to read `{s}`", .{path}),
        else => say(memory, "failed", "cannot read `{s}`: {s}", .{ path, @errorName(reason) }),
    };
    defer file.close();
    const text = file.readToEndAlloc(memory, max_file) catch |reason|
        return say(memory, "failed", "cannot read `{s}`: {s}", .{ path, @errorName(reason) });
    return sum(memory, text, arguments.column);
}

/// Adds up the cells of a column. A cell that is not a number is an error, not a zero.
fn sum(memory: std.mem.Allocator, text: []const u8, column: []const u8) !Answer {
    var reader = Reader{ .text = text };
    const wanted = while (try reader.next(memory)) |cell| {
        if (std.mem.eql(u8, cell.text, column)) break cell.index;
    } else return say(memory, "not_found", "there is no column `{s}`", .{column});
    reader.skipRow(memory) catch return fail("failed", "line 1: a quote is not closed");
    var total: f64 = 0;
    var rows: usize = 0;
    while (reader.hasRow()) {
        const line = reader.line;
        var found = false;
        while (reader.next(memory) catch
            return say(memory, "failed", "line {d}: a quote is not closed", .{line})) |cell|
        {
            if (cell.index != wanted) continue;
            const number = std.mem.trim(u8, cell.text, " \t");
            total += std.fmt.parseFloat(f64, number) catch
                return say(memory, "failed", "line {d}: `{s}` is not a number", .{ line, number });
            found = true;
        }
        if (!found) return say(memory, "failed", "line {d} has no column `{s}`", .{ line, column });
        rows += 1;
    }
    if (!std.math.isFinite(total)) return fail("failed", "the sum is not a finite number");
    return .{ .sum = .{ .value = total, .rows = rows } };
}

/// Reads cells as RFC 4180 has them: separated by commas, quoted where they hold commas, quotes or newlines.
const Reader = struct {
    text: []const u8,
    at: usize = 0,
    line: usize = 1,
    index: usize = 0,
    row_ended: bool = false,

    const Cell = struct { text: []const u8, index: usize };

    /// Whether there is another row; goes to its beginning.
    fn hasRow(self: *Reader) bool {
        self.row_ended = false;
        self.index = 0;
        return self.at < self.text.len;
    }

    /// The next cell of the row; null at the row's end.
    fn next(self: *Reader, memory: std.mem.Allocator) !?Cell {
        if (self.row_ended) return null;
        var cell: std.ArrayList(u8) = .empty;
        var quoted = false;
        while (self.at < self.text.len) {
            const byte = self.text[self.at];
            self.at += 1;
            if (byte == '"') {
                if (quoted and self.at < self.text.len and self.text[self.at] == '"') {
                    try cell.append(memory, '"');
                    self.at += 1;
                } else quoted = !quoted;
            } else if (byte == ',' and !quoted) {
                return self.finish(cell.items);
            } else if (byte == '\n') {
                self.line += 1;
                if (quoted) {
                    try cell.append(memory, byte);
                } else {
                    self.row_ended = true;
                    return self.finish(std.mem.trimRight(u8, cell.items, "\r"));
                }
            } else try cell.append(memory, byte);
        }
        if (quoted) return error.OpenQuote;
        self.row_ended = true;
        return self.finish(cell.items);
    }

    fn finish(self: *Reader, text: []const u8) Cell {
        defer self.index += 1;
        return .{ .text = text, .index = self.index };
    }

    fn skipRow(self: *Reader, memory: std.mem.Allocator) !void {
        while (try self.next(memory)) |_| {}
    }
};

fn write(memory: std.mem.Allocator, answer: Answer) !void {
    const line = switch (answer) {
        .sum => |it| try json(memory, .{ .ok = .{
            .content = .{.{ .type = "text", .text = try std.fmt.allocPrint(memory, "{d} in {d} rows", .{ it.value, it.rows }) }},
            .structured = .{ .sum = it.value, .rows = it.rows },
        } }),
        .failure => |it| try json(memory, .{ .@"error" = .{ .kind = it.kind, .message = it.message } }),
    };
    try std.fs.File.stdout().writeAll(line);
}

fn json(memory: std.mem.Allocator, value: anytype) ![]const u8 {
    return std.fmt.allocPrint(memory, "{f}\n", .{std.json.fmt(value, .{})});
}
