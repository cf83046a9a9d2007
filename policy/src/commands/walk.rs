//! Walks a parsed command and the commands within its words, and collects the programs.

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem,
    CompoundCommand, CompoundList, ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect,
    Pipeline, Program, RedirectList, SeparatorOperator, SimpleCommand, SubshellCommand,
    UnexpandedArithmeticExpr,
};

use super::{
    Operator, builtins,
    read::{self, FoundPrograms},
    runs::{self, RunTarget},
    text,
    words::{self, CommandWord},
};

/// The deepest nesting of texts as commands: `sh -c "sh -c …"`.
const MAX_DEPTH: usize = 16;

/// The most words and bytes collected from one command. Programs that run another, behind options that may or
/// may not have a value, multiply the readings.
const MAX_GATHERED: usize = 256 << 10;

/// Collects the programs of a command.
#[derive(Debug, Default)]
pub(super) struct Walker {
    pub(super) found: FoundPrograms,
    depth: usize,
    /// The number of words and bytes collected, of programs and of texts.
    gathered: usize,
    /// The text being read.
    source: Vec<char>,
}

/// Success if all of it could be read.
type WalkResult = Result<(), String>;

impl Walker {
    /// Walks the parsed form of a text.
    pub(super) fn program(&mut self, program: &Program, source: &str) -> WalkResult {
        let outer = std::mem::replace(&mut self.source, source.chars().collect());
        if program.complete_commands.len() > 1 {
            self.operator(Operator::Sequence);
        }
        program.complete_commands.iter().try_for_each(|list| self.list(list))?;
        self.source = outer;
        Ok(())
    }

    /// Reads a text that is itself a command.
    fn text(&mut self, command: &str) -> WalkResult {
        if self.depth == MAX_DEPTH {
            return Err(format!("commands within commands, more than {MAX_DEPTH} deep"));
        }
        self.gather(command.len())?;
        self.depth += 1;
        read::parse(command, self)?;
        self.depth -= 1;
        Ok(())
    }

    fn gather(&mut self, amount: usize) -> WalkResult {
        // At least one each: an empty text costs time too.
        self.gathered += amount + 1;
        if self.gathered > MAX_GATHERED { Err("it runs too many commands".to_owned()) } else { Ok(()) }
    }

    fn operator(&mut self, operator: Operator) {
        self.found.operators.insert(operator);
    }

    fn list(&mut self, list: &CompoundList) -> WalkResult {
        if list.0.len() > 1 {
            self.operator(Operator::Sequence);
        }
        for item in &list.0 {
            if matches!(item.1, SeparatorOperator::Async) {
                self.operator(Operator::Background);
            }
            self.and_or(&item.0)?;
        }
        Ok(())
    }

    fn and_or(&mut self, list: &AndOrList) -> WalkResult {
        self.pipeline(&list.first)?;
        for next in &list.additional {
            match next {
                AndOr::And(pipeline) => {
                    self.operator(Operator::And);
                    self.pipeline(pipeline)?;
                }
                AndOr::Or(pipeline) => {
                    self.operator(Operator::Or);
                    self.pipeline(pipeline)?;
                }
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> WalkResult {
        if pipeline.seq.len() > 1 {
            self.operator(Operator::Pipe);
        }
        pipeline.seq.iter().try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &Command) -> WalkResult {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.redirects(redirects.as_ref())?;
                self.compound(compound)
            }
            Command::Function(function) => {
                self.redirects(function.body.1.as_ref())?;
                self.compound(&function.body.0)
            }
            Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref())?;
                self.test(&test.expr)
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) -> WalkResult {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => {
                let span = arithmetic.loc.start.index..arithmetic.loc.end.index;
                // Fail closed: an empty text has no brackets, so it is refused below.
                let source: String = self.source.get(span).unwrap_or_default().iter().collect();
                if text::is_arithmetic(source.trim()) {
                    return self.arithmetic(Some(&arithmetic.expr));
                }
                // To bash these are subshells, but the parser does not parse the text between the brackets.
                self.operator(Operator::Subshell);
                let inner = source.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
                self.text(inner.ok_or("brackets within brackets")?)
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                self.arithmetic(clause.initializer.as_ref())?;
                self.arithmetic(clause.condition.as_ref())?;
                self.arithmetic(clause.updater.as_ref())?;
                self.list(&clause.body.list)
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.subshell(subshell, Operator::Subshell),
            CompoundCommand::ForClause(clause) => {
                clause.values.iter().flatten().try_for_each(|word| self.word(&word.value).map(drop))?;
                self.list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value)?;
                for case in &clause.cases {
                    case.patterns.iter().try_for_each(|word| self.word(&word.value).map(drop))?;
                    case.cmd.iter().try_for_each(|list| self.list(list))?;
                }
                Ok(())
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().try_for_each(|list| self.list(list))?;
                    self.list(&branch.body)?;
                }
                Ok(())
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.operator(Operator::Background);
                self.command(&coprocess.body)
            }
        }
    }

    fn subshell(&mut self, subshell: &SubshellCommand, operator: Operator) -> WalkResult {
        self.operator(operator);
        self.list(&subshell.list)
    }

    fn test(&mut self, expression: &ExtendedTestExpr) -> WalkResult {
        match expression {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.test(one)?;
                self.test(other)
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ExtendedTestExpr::UnaryTest(_, word) => {
                builtins::ensure_no_hidden_index(&self.word(&word.value)?)
            }
            ExtendedTestExpr::BinaryTest(_, one, other) => {
                builtins::ensure_no_hidden_index(&self.word(&one.value)?)?;
                builtins::ensure_no_hidden_index(&self.word(&other.value)?)
            }
        }
    }

    fn arithmetic(&mut self, expression: Option<&UnexpandedArithmeticExpr>) -> WalkResult {
        // In quotes it is one word, of which only the expansions matter.
        expression.map_or(Ok(()), |expression| self.word(&format!("\"{}\"", expression.value)).map(drop))
    }

    /// A word's text; commands within it are collected.
    fn word(&mut self, raw: &str) -> Result<CommandWord, String> {
        let word = words::read(raw)?;
        for command in &word.substitutions {
            self.operator(Operator::Substitution);
            self.text(command)?;
        }
        Ok(word.argument)
    }

    fn redirects(&mut self, list: Option<&RedirectList>) -> WalkResult {
        list.map_or(Ok(()), |list| list.0.iter().try_for_each(|redirect| self.redirect(redirect)))
    }

    fn redirect(&mut self, redirect: &IoRedirect) -> WalkResult {
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
                        self.operator(operator);
                        self.word(&word.value).map(drop)
                    }
                    // A duplicated stream writes no file.
                    IoFileRedirectTarget::Fd(_) => Ok(()),
                    IoFileRedirectTarget::Duplicate(word) => {
                        let target = self.word(&word.value)?;
                        // `2>&1` and `2>&-` write no file; `>&FILE` does.
                        let is_stream =
                            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                        if !target.literal().is_some_and(is_stream) {
                            self.operator(operator);
                        }
                        Ok(())
                    }
                    IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                        self.operator(operator);
                        self.subshell(subshell, Operator::Process)
                    }
                }
            }
            IoRedirect::HereDocument(_, document) => {
                self.operator(Operator::Input);
                // In a document after a quoted mark (`<<'EOF'`) the shell expands nothing.
                if !document.requires_expansion {
                    return Ok(());
                }
                for command in words::read_document(&document.doc.value)? {
                    self.operator(Operator::Substitution);
                    self.text(&command)?;
                }
                Ok(())
            }
            IoRedirect::HereString(_, word) => {
                self.operator(Operator::Input);
                self.word(&word.value).map(drop)
            }
            IoRedirect::OutputAndError(word, _) => {
                self.operator(Operator::Output);
                self.word(&word.value).map(drop)
            }
        }
    }

    fn simple(&mut self, command: &SimpleCommand) -> WalkResult {
        let mut words = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            // Assignments before the name are no arguments of the program.
            self.item(item, &mut Vec::new())?;
        }
        if let Some(name) = &command.word_or_name {
            words.push(self.word(&name.value)?);
        }
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut words)?;
        }
        if words.is_empty() { Ok(()) } else { self.invocation(words) }
    }

    /// A word or redirection before or after a program's name.
    fn item(&mut self, item: &CommandPrefixOrSuffixItem, words: &mut Vec<CommandWord>) -> WalkResult {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
            CommandPrefixOrSuffixItem::Word(word) => {
                words.push(self.word(&word.value)?);
                Ok(())
            }
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                self.assignment(assignment)?;
                words.push(
                    words::read(&word.value).map_or_else(|_| CommandWord::plain("="), |it| it.argument),
                );
                Ok(())
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                // Bash passes such a path. A shell that would read its command from there is refused.
                words.push(CommandWord::plain("/dev/fd/"));
                self.subshell(subshell, Operator::Process)
            }
        }
    }

    fn assignment(&mut self, assignment: &Assignment) -> WalkResult {
        let name = match &assignment.name {
            AssignmentName::VariableName(name) => name,
            AssignmentName::ArrayElementName(name, index) => {
                builtins::ensure_no_hidden_command(&self.word(index)?)?;
                name
            }
        };
        builtins::ensure_harmless(name)?;
        self.found.sets_path |= name == "PATH";
        match &assignment.value {
            AssignmentValue::Scalar(word) => builtins::ensure_no_hidden_index(&self.word(&word.value)?),
            AssignmentValue::Array(elements) => elements.iter().try_for_each(|(key, value)| {
                key.iter().try_for_each(|key| self.word(&key.value).map(drop))?;
                self.word(&value.value).map(drop)
            }),
        }
    }

    /// Collects a program's call, and the programs that it runs in turn.
    fn invocation(&mut self, words: Vec<CommandWord>) -> WalkResult {
        if self.depth == MAX_DEPTH {
            return Err(format!("commands within commands, more than {MAX_DEPTH} deep"));
        }
        self.gather(8 * words.len())?;
        builtins::ensure_readable(&words)?;
        self.found.sets_path |= builtins::may_set_path(&words);
        let runs = runs::runs(&words)?;
        self.found.invocations.push(words);
        self.depth += 1;
        for inner in runs {
            match inner {
                RunTarget::Text(command) => self.text(&command)?,
                RunTarget::Program(words) => self.invocation(words)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }
}
