//! From the parser's syntax tree to a resolved expression.
//!
//! Macros come from the parser already expanded into general loops; here they are recognised again, so that
//! `map` and `filter` cost what they should and errors surface where cel-go surfaces them.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Ast, IdedExpr, LiteralValue, operators,
};
use kube_cel::cel::parser::Parser;

use super::Program;
use super::expr::{Call, Expr, Loop, LoopKind, Operator};
use super::functions::{self, Function};
use crate::schema::regexp;

pub(super) fn compile(source: &str) -> Result<Program, String> {
    let ast = Parser::new().enable_optional_syntax(true).parse(source).map_err(|errors| {
        let text = errors.to_string();
        if text.starts_with("ERROR") { text } else { format!("ERROR: <input>:1:1: {text}") }
    })?;
    let mut lowering = Lowering { locals: Vec::new(), uses_old_self: false };
    let expr = lowering.expr(&ast).map_err(|problem| format!("ERROR: <input>:1:1: {problem}"))?;
    Ok(Program { expr, uses_old_self: lowering.uses_old_self })
}

struct Lowering {
    locals: Vec<String>,
    uses_old_self: bool,
}

type Lowered = Result<Expr, String>;

impl Lowering {
    fn boxed(&mut self, ast: &IdedExpr) -> Result<Box<Expr>, String> {
        self.expr(ast).map(Box::new)
    }

    fn expr(&mut self, ast: &IdedExpr) -> Lowered {
        match &ast.expr {
            Ast::Literal(literal) => Ok(self::literal(literal)),
            Ast::Ident(name) => self.ident(name),
            Ast::Select(select) => {
                let operand = self.boxed(&select.operand)?;
                let field = select.field.clone();
                Ok(if select.test { Expr::Has(operand, field) } else { Expr::Select(operand, field) })
            }
            Ast::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.iter().enumerate() {
                    items.push((self.expr(element)?, list.optional_indices.contains(&index)));
                }
                Ok(Expr::List(items))
            }
            Ast::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err("unsupported map entry".to_owned());
                    };
                    entries.push((self.expr(&entry.key)?, self.expr(&entry.value)?, entry.optional));
                }
                Ok(Expr::Map(entries))
            }
            Ast::Comprehension(comprehension) => self.comprehension(comprehension),
            Ast::Call(call) => self.call(call),
            Ast::Struct(message) => {
                Err(format!("undeclared reference to '{}' (in container '')", message.type_name))
            }
            Ast::Unspecified => Err("empty expression".to_owned()),
        }
    }

    fn ident(&mut self, name: &str) -> Lowered {
        if let Some(index) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Expr::Local(index));
        }
        match name {
            "self" => Ok(Expr::This),
            "oldSelf" => {
                self.uses_old_self = true;
                Ok(Expr::Old)
            }
            _ => match functions::type_name(name) {
                Some(name) => Ok(Expr::Type(name)),
                None => Err(format!("undeclared reference to '{name}' (in container '')")),
            },
        }
    }

    fn call(&mut self, call: &CallExpr) -> Lowered {
        if let Some(target) = &call.target {
            return self.member_call(&call.func_name, target, &call.args);
        }
        let name = call.func_name.as_str();
        let binary = match name {
            operators::ADD => Some(Operator::Add),
            operators::SUBSTRACT => Some(Operator::Subtract),
            operators::MULTIPLY => Some(Operator::Multiply),
            operators::DIVIDE => Some(Operator::Divide),
            operators::MODULO => Some(Operator::Modulo),
            operators::EQUALS => Some(Operator::Equal),
            operators::NOT_EQUALS => Some(Operator::NotEqual),
            operators::LESS => Some(Operator::Less),
            operators::LESS_EQUALS => Some(Operator::LessEqual),
            operators::GREATER => Some(Operator::Greater),
            operators::GREATER_EQUALS => Some(Operator::GreaterEqual),
            operators::IN => Some(Operator::In),
            _ => None,
        };
        match (name, call.args.as_slice()) {
            (_, [left, right]) if binary.is_some() => {
                let operator = binary.unwrap_or(Operator::Equal);
                Ok(Expr::Binary(operator, self.boxed(left)?, self.boxed(right)?))
            }
            (operators::LOGICAL_AND, [left, right]) => Ok(Expr::And(self.boxed(left)?, self.boxed(right)?)),
            (operators::LOGICAL_OR, [left, right]) => Ok(Expr::Or(self.boxed(left)?, self.boxed(right)?)),
            (operators::LOGICAL_NOT, [operand]) => Ok(Expr::Not(self.boxed(operand)?)),
            (operators::NEGATE, [operand]) => Ok(Expr::Negate(self.boxed(operand)?)),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                Ok(Expr::If(self.boxed(condition)?, self.boxed(yes)?, self.boxed(no)?))
            }
            (operators::INDEX, [operand, index]) => Ok(Expr::Index(self.boxed(operand)?, self.boxed(index)?)),
            (operators::OPT_INDEX, [operand, index]) => {
                Ok(Expr::MaybeIndex(self.boxed(operand)?, self.boxed(index)?))
            }
            (operators::OPT_SELECT, [operand, field]) => match &field.expr {
                Ast::Literal(LiteralValue::String(field)) => {
                    Ok(Expr::MaybeSelect(self.boxed(operand)?, field.inner().to_owned()))
                }
                _ => Err("unsupported optional field selection".to_owned()),
            },
            ("dyn", [operand]) => self.expr(operand),
            (_, args) => self.function(name, false, None, args),
        }
    }

    fn member_call(&mut self, name: &str, target: &IdedExpr, args: &[IdedExpr]) -> Lowered {
        // `sets.contains(a, b)`: a namespace, unless a variable has that name.
        if let Ast::Ident(namespace) = &target.expr
            && self.ident(namespace).is_err()
        {
            let qualified = format!("{namespace}.{name}");
            if !functions::exists(&qualified) {
                return Err(format!("undeclared reference to '{namespace}' (in container '')"));
            }
            return self.function(&qualified, false, None, args);
        }
        let simple = |index: usize| match args.get(index).map(|a| &a.expr) {
            Some(Ast::Ident(name)) => Some(name.clone()),
            _ => None,
        };
        let kind = match (name, args.len()) {
            ("all", 3) => Some(LoopKind::All),
            ("exists", 3) => Some(LoopKind::Exists),
            ("existsOne" | "exists_one", 3) => Some(LoopKind::ExistsOne),
            ("transformList", 3 | 4) => Some(LoopKind::List),
            ("transformMap", 3 | 4) => Some(LoopKind::Map),
            ("transformMapEntry", 3 | 4) => Some(LoopKind::MapEntry),
            ("optMap", 2) => Some(LoopKind::OptionalMap),
            ("optFlatMap", 2) => Some(LoopKind::OptionalFlatMap),
            ("sortBy", 2) => Some(LoopKind::SortBy),
            _ => None,
        };
        if let Some(kind) = kind {
            let two = args.len() > 2;
            let variables = if two { vec![simple(0), simple(1)] } else { vec![simple(0)] };
            let Some(variables) = variables.into_iter().collect::<Option<Vec<String>>>() else {
                return Err("argument must be a simple name".to_owned());
            };
            let filter = if args.len() == 4 { args.get(2) } else { None };
            let Some(body) = args.last() else { return Err("missing argument".to_owned()) };
            return self.repeat(kind, target, &variables, filter, body);
        }
        if let ("or" | "orValue", [other]) = (name, args) {
            return Ok(Expr::Otherwise(self.boxed(target)?, self.boxed(other)?, name == "orValue"));
        }
        self.function(name, true, Some(target), args)
    }

    fn function(
        &mut self,
        name: &str,
        member: bool,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
    ) -> Lowered {
        let count = args.len() + usize::from(target.is_some());
        let function = match functions::find(name, member, count) {
            Some(function) => function,
            // Called with too many arguments, or in the wrong way; the type check says so.
            None if functions::exists(name) => Function::Misused,
            None => return Err(format!("undeclared reference to '{name}' (in container '')")),
        };
        let mut lowered = Vec::with_capacity(count);
        for arg in target.into_iter().chain(args) {
            lowered.push(self.expr(arg)?);
        }
        if let (Function::Matches, [_, Expr::Text(pattern)]) = (&function, lowered.as_slice()) {
            let regex = regexp::compile(pattern).map_err(|_| "invalid matches argument".to_owned())?;
            return Ok(Expr::Matches(Box::new(lowered.swap_remove(0)), regex));
        }
        Ok(Expr::Call(Call { name: name.to_owned(), member, function }, lowered))
    }

    /// Recognises the loop that the parser made of `all`, `exists`, `exists_one`, `map` or `filter`.
    fn comprehension(&mut self, made: &ComprehensionExpr) -> Lowered {
        let Ast::Call(step) = &made.loop_step.expr else {
            return Err("unsupported comprehension".to_owned());
        };
        let variables = vec![made.iter_var.clone()];
        let range = &made.iter_range;
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_AND, [_, body]) => self.repeat(LoopKind::All, range, &variables, None, body),
            (operators::LOGICAL_OR, [_, body]) => {
                self.repeat(LoopKind::Exists, range, &variables, None, body)
            }
            (operators::ADD, [_, item]) => match single_item(item) {
                Some(body) => self.repeat(LoopKind::List, range, &variables, None, body),
                None => Err("unsupported comprehension".to_owned()),
            },
            (operators::CONDITIONAL, [condition, yes, _]) => {
                let Ast::Call(add) = &yes.expr else { return Err("unsupported comprehension".to_owned()) };
                match add.args.get(1).map(|item| (single_item(item), item)) {
                    Some((Some(body), _)) => {
                        self.repeat(LoopKind::List, range, &variables, Some(condition), body)
                    }
                    Some((None, _)) => self.repeat(LoopKind::ExistsOne, range, &variables, None, condition),
                    None => Err("unsupported comprehension".to_owned()),
                }
            }
            _ => Err("unsupported comprehension".to_owned()),
        }
    }

    fn repeat(
        &mut self,
        kind: LoopKind,
        range: &IdedExpr,
        variables: &[String],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
    ) -> Lowered {
        let range = self.expr(range)?;
        let depth = self.locals.len();
        self.locals.extend(variables.iter().cloned());
        let filter = filter.map(|f| self.expr(f)).transpose();
        let body = self.expr(body);
        self.locals.truncate(depth);
        Ok(Expr::Loop(Box::new(Loop {
            kind,
            range,
            two: variables.len() == 2,
            filter: filter?,
            body: body?,
        })))
    }
}

/// The only item of a list literal.
fn single_item(ast: &IdedExpr) -> Option<&IdedExpr> {
    match &ast.expr {
        Ast::List(list) if list.elements.len() == 1 => list.elements.first(),
        _ => None,
    }
}

fn literal(literal: &LiteralValue) -> Expr {
    match literal {
        LiteralValue::Null => Expr::Null,
        LiteralValue::Boolean(value) => Expr::Bool(*value.inner()),
        LiteralValue::Int(value) => Expr::Int(*value.inner()),
        LiteralValue::UInt(value) => Expr::Uint(*value.inner()),
        LiteralValue::Double(value) => Expr::Double(*value.inner()),
        LiteralValue::String(value) => Expr::Text(value.inner().to_owned()),
        LiteralValue::Bytes(value) => Expr::Bytes(value.inner().to_vec()),
    }
}
