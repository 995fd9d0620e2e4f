// The alert rules as a monitoring mixin: numbers in _config, alerts that you do not want in _config.without.
//
//   local watch = import 'alerts/mixin/mixin.libsonnet';
//   watch + { _config+:: { unhealthy_share_page: '0.3', without: ['VllmOverloaded'] } }
//
// rules.json is made by alerts/generate.py from alerts/*.yaml. Recording rules and alerts stay in the group that
// they share, where an alert sees at once what was recorded: all groups are under prometheusAlerts.
local source = import 'rules.json';

{
  _config+:: source.defaults { without: [] },

  local config = $._config,
  local inner(quoted) = std.substr(quoted, 1, std.length(quoted) - 2),
  local fill(group) = std.parseJson(std.foldl(
    function(text, name) std.strReplace(text, '<<' + name + '>>', inner(std.escapeStringJson(std.toString(config[name])))),
    std.objectFields(source.defaults),
    std.manifestJsonEx(group, ''),
  )),

  prometheusAlerts+:: {
    groups+: [
      group {
        rules: [
          rule
          for rule in group.rules
          if !(std.objectHas(rule, 'alert') && std.member(config.without, rule.alert))
        ],
      }
      for group in std.map(fill, source.groups)
    ],
  },
  prometheusRules+:: { groups+: [] },

  grafanaDashboards+:: {
    'vllm-watch-engine.json': import '../../dashboards/engine.json',
    'vllm-watch-overview.json': import '../../dashboards/overview.json',
    'vllm-watch-restarts.json': import '../../dashboards/restarts.json',
    'vllm-watch-vram.json': import '../../dashboards/vram.json',
    'vllm-watch-watcher.json': import '../../dashboards/watcher.json',
  },
}
