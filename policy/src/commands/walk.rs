//! Walks a parsed command and the commands within its words, and collects the programs.

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem,
    CompoundCommand, CompoundList, ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect,
    Pipeline, Program, RedirectList, SeparatorOperator, SimpleCommand, SubshellCommand,
    UnexpandedArithmeticExpr,
};

use super::{
    Operator, UnreadableCommand, builtins,
    read::{self, FoundPrograms},
    run_targets::{self, RunTarget},
    text,
    words::{self, CommandWord},
};

/// The maximum nesting of commands within commands, as in `sh -c "sh -c …"`.
pub(super) const MAX_DEPTH: usize = 16;

/// The maximum number of words and bytes collected from one command. If options may or may not have a value, a call is
/// read in several ways, and these readings multiply.
const MAX_COST: usize = 256 << 10;

/// A redirection to or from this device reads and writes nothing.
const NO_FILE: &str = "/dev/null";

/// Collects the programs of a command.
#[derive(Debug, Default)]
pub(super) struct Walker {
    pub(super) programs: FoundPrograms,
    depth: usize,
    /// The number of words and bytes collected so far, of programs and of texts.
    cost: usize,
    /// The text being read, as characters, because the parser's positions count characters.
    source: Vec<char>,
}

/// Success, or the reason why the programs are unknown.
type WalkResult = Result<(), UnreadableCommand>;

impl Walker {
    /// Walks the parsed form of a text.
    pub(super) fn walk_program(&mut self, program: &Program, source: &str) -> WalkResult {
        // Positions refer to the innermost text, so set the outer text aside and restore it afterwards.
        let outer = std::mem::replace(&mut self.source, source.chars().collect());
        if program.complete_commands.len() > 1 {
            self.record_operator(Operator::Sequence);
        }
        program.complete_commands.iter().try_for_each(|list| self.walk_list(list))?;
        self.source = outer;
        Ok(())
    }

    /// Walks a text that is itself a command, such as the argument of `sh -c`.
    fn walk_text(&mut self, command: &str) -> WalkResult {
        if self.depth == MAX_DEPTH {
            return Err(UnreadableCommand::DeepCommands);
        }
        self.charge(command.len())?;
        self.depth += 1;
        read::parse(command, self)?;
        self.depth -= 1;
        Ok(())
    }

    fn charge(&mut self, amount: usize) -> WalkResult {
        // An empty text costs time too, so each text counts one more than its size.
        self.cost += amount + 1;
        if self.cost > MAX_COST { Err(UnreadableCommand::ManyCommands) } else { Ok(()) }
    }

    fn record_operator(&mut self, operator: Operator) {
        self.programs.operators.insert(operator);
        match operator {
            Operator::And | Operator::Or | Operator::Sequence | Operator::Pipe => {}
            Operator::Background => self.record_beyond_calls("a background job"),
            Operator::Input | Operator::Output => self.record_beyond_calls("a redirection"),
            Operator::Substitution | Operator::Process => self.record_beyond_calls("a substitution"),
            Operator::Subshell => self.record_beyond_calls("a subshell"),
        }
    }

    fn record_beyond_calls(&mut self, part: &'static str) {
        self.programs.beyond_calls.get_or_insert(part);
    }

    fn walk_list(&mut self, list: &CompoundList) -> WalkResult {
        if list.0.len() > 1 {
            self.record_operator(Operator::Sequence);
        }
        for item in &list.0 {
            if matches!(item.1, SeparatorOperator::Async) {
                self.record_operator(Operator::Background);
            }
            self.walk_and_or(&item.0)?;
        }
        Ok(())
    }

    fn walk_and_or(&mut self, list: &AndOrList) -> WalkResult {
        self.walk_pipeline(&list.first)?;
        for next in &list.additional {
            match next {
                AndOr::And(pipeline) => {
                    self.record_operator(Operator::And);
                    self.walk_pipeline(pipeline)?;
                }
                AndOr::Or(pipeline) => {
                    self.record_operator(Operator::Or);
                    self.walk_pipeline(pipeline)?;
                }
            }
        }
        Ok(())
    }

    fn walk_pipeline(&mut self, pipeline: &Pipeline) -> WalkResult {
        if pipeline.seq.len() > 1 {
            self.record_operator(Operator::Pipe);
        }
        pipeline.seq.iter().try_for_each(|command| self.walk_command(command))
    }

    fn walk_command(&mut self, command: &Command) -> WalkResult {
        match command {
            Command::Simple(simple) => self.walk_simple_command(simple),
            Command::Compound(compound, redirects) => {
                self.record_beyond_calls("a compound command");
                self.walk_redirects(redirects.as_ref())?;
                self.walk_compound(compound)
            }
            Command::Function(function) => {
                self.record_beyond_calls("a function");
                self.walk_redirects(function.body.1.as_ref())?;
                self.walk_compound(&function.body.0)
            }
            Command::ExtendedTest(test, redirects) => {
                self.record_beyond_calls("a test");
                self.walk_redirects(redirects.as_ref())?;
                self.walk_test(&test.expr)
            }
        }
    }

    fn walk_compound(&mut self, compound: &CompoundCommand) -> WalkResult {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => {
                let span = arithmetic.loc.start.index..arithmetic.loc.end.index;
                // Fail closed: an empty text has no brackets, so the code below refuses it.
                let source: String = self.source.get(span).unwrap_or_default().iter().collect();
                if text::is_arithmetic(source.trim()) {
                    return self.walk_arithmetic(Some(&arithmetic.expr));
                }
                // Bash reads this text as subshells, but the parser leaves it unparsed.
                self.record_operator(Operator::Subshell);
                let inner = source.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
                self.walk_text(inner.ok_or(UnreadableCommand::NestedBrackets)?)
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                self.walk_arithmetic(clause.initializer.as_ref())?;
                self.walk_arithmetic(clause.condition.as_ref())?;
                self.walk_arithmetic(clause.updater.as_ref())?;
                self.walk_list(&clause.body.list)
            }
            CompoundCommand::BraceGroup(group) => self.walk_list(&group.list),
            CompoundCommand::Subshell(subshell) => self.subshell(subshell, Operator::Subshell),
            CompoundCommand::ForClause(clause) => {
                clause.values.iter().flatten().try_for_each(|word| self.walk_word(&word.value).map(drop))?;
                self.walk_list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.walk_word(&clause.value.value)?;
                for case in &clause.cases {
                    case.patterns.iter().try_for_each(|word| self.walk_word(&word.value).map(drop))?;
                    case.cmd.iter().try_for_each(|list| self.walk_list(list))?;
                }
                Ok(())
            }
            CompoundCommand::IfClause(clause) => {
                self.walk_list(&clause.condition)?;
                self.walk_list(&clause.then)?;
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().try_for_each(|list| self.walk_list(list))?;
                    self.walk_list(&branch.body)?;
                }
                Ok(())
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.walk_list(&clause.0)?;
                self.walk_list(&clause.1.list)
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.record_operator(Operator::Background);
                self.walk_command(&coprocess.body)
            }
        }
    }

    fn subshell(&mut self, subshell: &SubshellCommand, operator: Operator) -> WalkResult {
        self.record_operator(operator);
        self.walk_list(&subshell.list)
    }

    fn walk_test(&mut self, expression: &ExtendedTestExpr) -> WalkResult {
        match expression {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.walk_test(left)?;
                self.walk_test(right)
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.walk_test(inner),
            ExtendedTestExpr::UnaryTest(_, word) => {
                builtins::ensure_no_hidden_index(&self.walk_word(&word.value)?)
            }
            ExtendedTestExpr::BinaryTest(_, left, right) => {
                builtins::ensure_no_hidden_index(&self.walk_word(&left.value)?)?;
                builtins::ensure_no_hidden_index(&self.walk_word(&right.value)?)
            }
        }
    }

    fn walk_arithmetic(&mut self, expression: Option<&UnexpandedArithmeticExpr>) -> WalkResult {
        // The expression is one word, as in double quotes, and only its expansions matter.
        expression.map_or(Ok(()), |expression| self.walk_word(&format!("\"{}\"", expression.value)).map(drop))
    }

    /// Reads a word, and collects the commands within it.
    fn walk_word(&mut self, raw: &str) -> Result<CommandWord, UnreadableCommand> {
        let word = words::read(raw)?;
        for command in &word.substitutions {
            self.record_operator(Operator::Substitution);
            self.walk_text(command)?;
        }
        Ok(word.argument)
    }

    fn walk_redirects(&mut self, list: Option<&RedirectList>) -> WalkResult {
        list.map_or(Ok(()), |list| list.0.iter().try_for_each(|redirect| self.walk_redirect(redirect)))
    }

    fn walk_redirect(&mut self, redirect: &IoRedirect) -> WalkResult {
        match redirect {
            IoRedirect::File(_, kind, target) => {
                let operator = match kind {
                    IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => Operator::Input,
                    IoFileRedirectKind::Write
                    | IoFileRedirectKind::Append
                    | IoFileRedirectKind::ReadAndWrite
                    | IoFileRedirectKind::Clobber
                    | IoFileRedirectKind::DuplicateOutput => Operator::Output,
                };
                match target {
                    IoFileRedirectTarget::Filename(word) => {
                        // The operator always counts for `operators`, but a redirection to `/dev/null` adds
                        // nothing to the call itself.
                        let beyond_calls = self.programs.beyond_calls;
                        self.record_operator(operator);
                        if word.value == NO_FILE {
                            self.programs.beyond_calls = beyond_calls;
                        }
                        self.walk_word(&word.value).map(drop)
                    }
                    // Duplicating a stream writes no file.
                    IoFileRedirectTarget::Fd(_) => Ok(()),
                    IoFileRedirectTarget::Duplicate(word) => {
                        let target = self.walk_word(&word.value)?;
                        // `2>&1` and `2>&-` write no file, but `>&FILE` does.
                        let is_stream =
                            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                        if !target.literal().is_some_and(is_stream) {
                            self.record_operator(operator);
                        }
                        Ok(())
                    }
                    IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                        self.record_operator(operator);
                        self.subshell(subshell, Operator::Process)
                    }
                }
            }
            IoRedirect::HereDocument(_, document) => {
                self.record_operator(Operator::Input);
                // After a quoted mark (`<<'EOF'`), the shell expands nothing in the document.
                if !document.requires_expansion {
                    return Ok(());
                }
                for command in words::read_document(&document.doc.value)? {
                    self.record_operator(Operator::Substitution);
                    self.walk_text(&command)?;
                }
                Ok(())
            }
            IoRedirect::HereString(_, word) => {
                self.record_operator(Operator::Input);
                self.walk_word(&word.value).map(drop)
            }
            IoRedirect::OutputAndError(word, _) => {
                self.record_operator(Operator::Output);
                self.walk_word(&word.value).map(drop)
            }
        }
    }

    fn walk_simple_command(&mut self, command: &SimpleCommand) -> WalkResult {
        let mut words = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            if matches!(item, CommandPrefixOrSuffixItem::AssignmentWord(..)) {
                self.record_beyond_calls("an assignment");
            }
            // Assignments before the name are not arguments of the program, so drop their words.
            self.walk_item(item, &mut Vec::new())?;
        }
        if let Some(name) = &command.word_or_name {
            words.push(self.walk_word(&name.value)?);
        }
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.walk_item(item, &mut words)?;
        }
        if words.is_empty() { Ok(()) } else { self.collect_invocation(words) }
    }

    /// Walks a word or redirection before or after a program's name.
    fn walk_item(&mut self, item: &CommandPrefixOrSuffixItem, words: &mut Vec<CommandWord>) -> WalkResult {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.walk_redirect(redirect),
            CommandPrefixOrSuffixItem::Word(word) => {
                words.push(self.walk_word(&word.value)?);
                Ok(())
            }
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                self.walk_assignment(assignment)?;
                words.push(
                    words::read(&word.value).map_or_else(|_| CommandWord::plain("="), |parts| parts.argument),
                );
                Ok(())
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                // Bash passes such a path. A shell that would read its command from this path is refused.
                words.push(CommandWord::plain("/dev/fd/"));
                self.subshell(subshell, Operator::Process)
            }
        }
    }

    fn walk_assignment(&mut self, assignment: &Assignment) -> WalkResult {
        let name = match &assignment.name {
            AssignmentName::VariableName(name) => name,
            AssignmentName::ArrayElementName(name, index) => {
                builtins::ensure_no_hidden_command(&self.walk_word(index)?)?;
                name
            }
        };
        builtins::ensure_harmless(name)?;
        // With another `PATH`, an allowed name may run any program.
        self.programs.sets_path |= name == "PATH";
        match &assignment.value {
            AssignmentValue::Scalar(word) => builtins::ensure_no_hidden_index(&self.walk_word(&word.value)?),
            AssignmentValue::Array(elements) => elements.iter().try_for_each(|(key, value)| {
                key.iter().try_for_each(|key| self.walk_word(&key.value).map(drop))?;
                self.walk_word(&value.value).map(drop)
            }),
        }
    }

    /// Collects a program's call and the programs that the call runs in turn.
    fn collect_invocation(&mut self, words: Vec<CommandWord>) -> WalkResult {
        if self.depth == MAX_DEPTH {
            return Err(UnreadableCommand::DeepCommands);
        }
        self.charge(8 * words.len())?;
        builtins::ensure_readable(&words)?;
        self.programs.sets_path |= builtins::may_set_path(&words);
        let targets = run_targets::run_targets(&words)?;
        self.programs.invocations.push(words);
        self.depth += 1;
        for target in targets {
            match target {
                RunTarget::Text(command) => self.walk_text(&command)?,
                RunTarget::Program(words) => self.collect_invocation(words)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }
}
