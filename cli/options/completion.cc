// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/completion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/options/option_table.h"

namespace ddprun::cli {
namespace {

// How an option may be spelled: with dashes, with underscores, in short.
std::vector<std::string> spellings(const OptionSpec& spec) {
  std::vector<std::string> all = {"--" + std::string(spec.name)};
  std::string underscored = "--" + with_underscores(spec.name);
  if (underscored != all.front()) all.push_back(underscored);
  if (spec.short_name != 0) all.push_back("-" + std::string(1, spec.short_name));
  return all;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// "a b c" of "a|b|c"; empty where the choices are paths.
std::string words_of(std::string_view choices) {
  std::string words(choices.starts_with('<') ? "" : choices);
  std::replace(words.begin(), words.end(), '|', ' ');
  return words;
}

// `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// For an argument in single quotes.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// An empty COMPREPLY leaves it to bash, which offers files.
constexpr const char* kBashHead = R"(# bash completion of ddprun
_ddprun() {
  local word cur=${COMP_WORDS[COMP_CWORD]} value_of= i
  COMPREPLY=()
  # bash makes a word of its own of the '=' in --option=value.
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
)";
constexpr const char* kBashMiddle = R"()
        [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((i++))
        ((++i >= COMP_CWORD)) && value_of=$word
        ;;
      --) return ;;
      -*) ;;
      *) return ;;  # the script: what follows is its own
    esac
  done
  [[ $cur == '=' ]] && cur=
  case $value_of in
)";
constexpr const char* kBashTail = R"(    ?*) return ;;
  esac
  [[ $cur == -* ]] && COMPREPLY=($(compgen -W "$options" -- "$cur"))
}
complete -o bashdefault -o default -F _ddprun ddprun
)";

std::string for_bash() {
  std::vector<std::string> all = {"--help", "--version"};
  std::vector<std::string> with_value;
  std::string values;
  for (const OptionSpec& spec : option_specs()) {
    std::vector<std::string> names = spellings(spec);
    all.insert(all.end(), names.begin(), names.end());
    if (spec.value_name == nullptr) continue;
    with_value.insert(with_value.end(), names.begin(), names.end());
    if (std::string words = words_of(spec.choices); !words.empty()) {
      values += "    " + joined(names, " | ") + ") COMPREPLY=($(compgen -W '" + words +
                "' -- \"$cur\")); return ;;\n";
    }
  }
  return std::string(kBashHead) + "      " + joined(with_value, " | ") + kBashMiddle + values +
         "    '') local options='" + joined(all, " ") + "' ;;\n" + kBashTail;
}

std::string zsh_action(const OptionSpec& spec) {
  if (spec.choices == "<dir>") return "_files -/";
  if (spec.choices == "<file>") return "_files";
  std::string words = words_of(spec.choices);
  return words.empty() ? " " : "(" + words + ")";
}

std::string for_zsh() {
  std::string script = "#compdef ddprun\n# zsh completion of ddprun\n_arguments -S \\\n";
  script += "  '(-)'{-h,--help}'[Print the options and exit]' \\\n";
  script += "  '(-)--version[Print the version and exit]' \\\n";
  for (const OptionSpec& spec : option_specs()) {
    std::string rest = "[" + escaped(spec.help, "[]:\\") + "]";
    bool has_value = spec.value_name != nullptr;
    if (has_value) rest += ":" + escaped(spec.value_name, ":\\") + ":" + zsh_action(spec);
    for (const std::string& name : spellings(spec)) {
      // "=": the value is the next word, or follows '='; "+" the same for a short option.
      const char* form = !has_value ? "" : name.starts_with("--") ? "=" : "+";
      script += "  " + quoted(name + form + rest) + " \\\n";
    }
  }
  return script + "  '1:script:_files' '*::argument:_files'\n";
}

std::string for_fish() {
  std::string script = "# fish completion of ddprun\n";
  script += "complete -c ddprun -s h -l help -d 'Print the options and exit'\n";
  script += "complete -c ddprun -l version -d 'Print the version and exit'\n";
  for (const OptionSpec& spec : option_specs()) {
    std::string value;
    if (spec.value_name != nullptr) value = spec.choices.starts_with('<') ? " -r" : " -x";
    if (std::string words = words_of(spec.choices); !words.empty()) value += " -a '" + words + "'";
    std::string short_name;
    if (spec.short_name != 0) short_name = " -s " + std::string(1, spec.short_name);
    for (const std::string& name : spellings(spec)) {
      if (!name.starts_with("--")) continue;
      script += "complete -c ddprun" + std::exchange(short_name, "") + " -l " + name.substr(2) +
                value + " -d '" + escaped(spec.help, "'\\") + "'\n";
    }
  }
  return script;
}

std::string for_tcsh() {
  std::vector<std::string> names = {"help", "version"};
  std::string script = "# tcsh completion of ddprun\ncomplete ddprun";
  for (const OptionSpec& spec : option_specs()) {
    std::string words = words_of(spec.choices);
    for (const std::string& name : spellings(spec)) {
      if (name.starts_with("--")) names.push_back(name.substr(2));
      if (!words.empty()) script += " 'n/" + name + "/(" + words + ")/'";
      if (spec.choices == "<dir>") script += " 'n/" + name + "/d/'";
    }
  }
  return script + " 'c/--/(" + joined(names, " ") + ")/' 'p/*/f/'\n";
}

}  // namespace

Result<std::string> completion(std::string_view shell) {
  if (shell == "bash") return for_bash();
  if (shell == "zsh") return for_zsh();
  if (shell == "fish") return for_fish();
  if (shell == "tcsh") return for_tcsh();
  return Error{Errc::InvalidInput,
               "--print-completion='" + std::string(shell) + "' is not bash, zsh, fish or tcsh"};
}

}  // namespace ddprun::cli
